"""From the tables of users to numbers: columns, categories, gaps, groups."""
