"""Methods of single papers inside verl: `trainer/` acts in the trainer, `engine/` in its workers.

Adapters elsewhere do not import them. `extensions.method_features` lists them.
"""
