"""The universes (vocabularies for enumeration). Each module lists which operators and variables are enumerated together.

Read `pointwise` first. `families` lists the universes of each rule family.
"""
