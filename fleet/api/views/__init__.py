"""Thin views: read the words, call a service or a selector, write the words."""
