"""The control API's words: camelCase, as on every wire of Halcyon. One module a concept."""
