"""The rollout and history pages: what the judge saw, what it said, and what people did.

reading    rows of the database as plain values, once per change
panels     those values as ready text, for first paints and the live feed
charts     the flagship's figures and their series
pages, history_pages, start, actions    the views
"""
