"""The design that all HTML pages share: colours, layout, charts."""
