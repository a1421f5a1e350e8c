"""Parts of extensions that run inside verl.

They may import verl, the core and extensions. The core imports none of them.
"""
