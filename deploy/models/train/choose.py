"""Drawing from lists so that a model can learn a favourite.

A uniform draw leaves a greedy decoder with a coin toss at every choice. Here the first option is the likeliest and the
others follow as 1, 1/2, 1/3 ...; with a key, the order itself depends on the key, so that stories about a fox and
stories about a whale have different favourites.
"""

import hashlib
import random


def pick(rng, options, key=None):
    options = list(options)
    if key is not None:
        order = random.Random(hashlib.md5(key.encode()).digest())
        order.shuffle(options)
    weights = [1.0 / (rank + 1) ** 1.5 for rank in range(len(options))]
    return rng.choices(options, weights)[0]


def either(rng, wordings):
    """One of "this|or that|or this", all equally likely: for the user's side."""
    return rng.choice(wordings.split("|"))


def capital(text):
    return text[:1].upper() + text[1:]


def join_words(words):
    """apples, pears and plums"""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
