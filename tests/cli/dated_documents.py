"""Documents with dates and groups, and the tables of a report on them."""

import csv
import re
from urllib.parse import unquote

import numpy as np

WORDS = {theme: [f"{theme}{letter}" for letter in "abcdefghij"] for theme in ("sea", "law", "tea")}
N = 240


def records():
    """Documents on the sea grow fewer with the years, and lawyers write on the law."""
    rng = np.random.default_rng(0)
    found = []
    for i in range(N):
        year = 2000 + 20 * i // N
        party = ("lawyers", "others")[i % 2]
        odds = np.array([(2020 - year) / 10, 3.0 if party == "lawyers" else 0.2, 1.0])
        theme = rng.choice(["sea", "law", "tea"], p=odds / odds.sum())
        text = " ".join(rng.choice(WORDS[theme], 25))
        found.append({"year": year, "day": f"{year}-06-01", "party": party, "id": i, "text": text})
    found[5] |= {"year": None, "day": "", "party": ""}
    return found


def table(page, kind):
    (address,) = re.findall(rf'href="data:text/csv[^,]*,([^"]*)" download="{kind}.csv"', page)
    return list(csv.reader(unquote(address).splitlines()))
