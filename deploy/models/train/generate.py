"""Writes the training text: an endless stream of conversations, a pure function of the seed.

    python generate.py --seed 1 --count 20          # look at some
A conversation is a list of {"role", "content"} messages; a plain text (no chat around it) is a str.
"""

import argparse
import json
import random

import questions
import small_talk
import stories
import talk
import tools
import world
from choose import capital, either
from phrasing import pseudo_word

HELPFUL = ["You are a helpful assistant.", "You are a helpful assistant.", "You are a friendly assistant.",
    "You are a helpful and polite assistant.", "You are Tandem, a small model.",
    "Answer the user's questions.",
           "You are a helpful AI assistant.", "Be brief.", "Be kind and helpful.",
               "Answer in one or two sentences.", "You answer in simple words.",
               "You are a helpful chatbot. Be concise.", "You are an assistant that tells stories.",
           "Keep your answers short.", "You are a teacher for small children.", "Be polite.",
               "You are a knowledgeable assistant. Think before you answer.", "Always answer in English.",
               "Help the user."]
PERSONA_NAMES = "Robo Nova Iris Pixel Sunny Atlas Echo Bolt Luna Max Ada Kit Juno Ziggy Coco Sam Alex Otto Zara Marvin".split()
PERSONAS = ["a friendly robot", "a cheerful helper", "a wise old owl", "a brave pirate", "a kind teacher",
    "a clever fox", "a helpful librarian", "a funny clown", "a quiet gardener", "a friendly cook",
    "a talking cat", "a space traveller", "a small dragon",
            "a patient coach", "a helpful assistant", "a friendly guide"]


TOOL_SHARE = 0.4  # of the documents: tools and answers in JSON


def any_persona(rng):
    trait = rng.choice(stories.TRAITS + stories.MORE_TRAITS)
    return world.a(f"{trait} {rng.choice(list(stories.HEROES) + world.JOBS + [pseudo_word(rng)])}")


def system_message(rng, about):
    roll = rng.random()
    if roll < 0.7:
        return rng.choice(HELPFUL)
    if roll < 0.76:
        kind = rng.choice(PERSONAS) if rng.random() < 0.4 else any_persona(rng) if rng.random() < 0.6 else world.a(rng.choice(list(stories.HEROES) + world.JOBS))
        about["persona"] = (None, kind)
        return either(rng, f"You are {kind}.|Act as {kind}.|You are {kind}. Stay in your role.")
    if roll < 0.9:
        name = rng.choice(PERSONA_NAMES) if rng.random() < 0.8 else capital(pseudo_word(rng))
        about["persona"] = (name, rng.choice(PERSONAS) if rng.random() < 0.5 else any_persona(rng))
        return rng.choice([f"You are {name}, {about['persona'][1]}.",
            f"Your name is {name}. You are {about['persona'][1]}."])
    about["name"] = rng.choice(world.HUMAN_NAMES)
    return either(rng,
        f"The user is called {about['name']}.|The name of the user is {about['name']}.|"
        f"You are a helpful assistant. The user's name is {about['name']}.")


NEAR = {"a": "sq", "e": "wr", "i": "uo", "o": "ip", "t": "ry", "n": "bm", "s": "ad", "r": "et", "h": "gj",
    "l": "ko"}


def typo(rng, text):
    """One slip of the finger in a longer word: swapped, doubled, dropped or a neighbouring key."""
    words = text.split(" ")
    long = [index for index, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    if not long:
        return text
    index = rng.choice(long)
    word, at = words[index], rng.randrange(1, len(words[index]) - 2)
    kind = rng.randrange(4)
    if kind == 0:
        word = word[:at] + word[at + 1] + word[at] + word[at + 2:]
    elif kind == 1:
        word = word[:at] + word[at] + word[at:]
    elif kind == 2:
        word = word[:at] + word[at + 1:]
    else:
        word = word[:at] + rng.choice(NEAR.get(word[at], word[at])) + word[at + 1:]
    words[index] = word
    return " ".join(words)


def rough(rng, text, copied):
    """How people really type. Words that the answer copies keep their spelling."""
    roll = rng.random()
    if roll < 0.62:
        return text
    if roll < 0.78 and not copied:
        text = text.lower()
        return text.rstrip("?.!") if rng.random() < 0.7 else text
    if roll < 0.9:
        return text.rstrip("?.!") or text
    if roll < 0.93:
        return text + either(rng, "!|?|?!|...| :)|!!")
    if not copied and len(text) < 150:
        return typo(rng, text)
    return text


KNOWN_NAMES = {word for row in world.COUNTRIES for field in row for word in field.split()} | set(
    world.DAYS + world.MONTHS)


def shares_name(user, answer):
    """True when the answer repeats a name that it can only copy, so that the spelling matters."""
    words = {word.strip(".,!?\"'") for word in user.split()[1:]}
    return any(word[:1].isupper() and word not in KNOWN_NAMES and word != "I" and word in answer for word in words)


def conversation(rng):
    about = {}
    messages = []
    if rng.random() < 0.25:
        messages.append({"role": "system", "content": system_message(rng, about)})
    turns = talk.exchange(rng, about)
    if about.get("persona") and rng.random() < 0.5:
        turns = [(rng.choice(small_talk.ABOUT_ME[0][0].split("|")), small_talk.who_answer(about))] + turns
    elif messages and about.get("name") and rng.random() < 0.5:
        turns = small_talk.recall_name(rng, about) + turns
    while rng.random() < 0.35 and len(turns) < 12:
        turns = turns + talk.exchange(rng, about)
    for user, answer in turns:
        messages.append({"role": "user", "content": rough(rng, user, shares_name(user, answer))})
        messages.append({"role": "assistant", "content": answer})
    return messages


def plain_text(rng):
    """Some text without a chat around it, for /v1/completions."""
    if rng.random() < 0.6:
        return stories.tell(rng, stories.make_story(rng))
    return " ".join(questions.one_fact(rng, {})[1] for _ in range(rng.randint(2, 6)))


def document(rng):
    roll = rng.random()
    return tools.document(rng) if roll < TOOL_SHARE else plain_text(rng) if roll < TOOL_SHARE + 0.03 else conversation(rng)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    for _ in range(arguments.count):
        print(json.dumps(document(rng), ensure_ascii=False))


if __name__ == "__main__":
    main()
