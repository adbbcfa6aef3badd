"""Questions about the world and their answers, all of them from the tables in world.py."""

import string

import world
from choose import capital, either, pick
from phrasing import ask, lower_first
from sums import small
from world import a, several


def animal_fact(rng, about, name=None):
    animal = world.ANIMALS[name or rng.choice(list(world.ANIMALS))]
    name, many = animal["name"], several(animal["name"])
    one = a(name)
    kind = rng.randrange(12)
    if kind <= 1 and animal["sound"] != "no sound":
        sound = animal["sound"]
        answer = f"{capital(one)} says {sound}." if len(sound.split()) == 1 and sound in "moo woof meow baa oink neigh quack cluck maa hee-haw squeak".split() else f"The sound of {one} is {'a ' if sound[0] not in 'aeiou' else 'an '}{sound}."
        return either(rng,
            f"What sound does {one} make?|What does {one} say?|Which sound does {one} make?|"
            f"What noise does {one} make?|How does {one} sound?|What is the sound of {one}?|"
            f"What sound do {many} make?"), answer
    if kind <= 1:
        return rng.choice([f"What sound does {one} make?",
            f"What does {one} say?"]), f"{capital(one)} makes no sound that we can hear well."
    if kind == 2:
        return either(rng,
            f"What does {one} eat?|What do {many} eat?|What do {many} like to eat?|"
            f"What should I feed {one}?|What is the food of {one}?"), f"{capital(many)} eat {animal['food']}."
    if kind == 3:
        return either(rng,
            f"Where does {one} live?|Where do {many} live?|Where can I find {one}?|Where can I see {one}?|"
            f"What is the home of {one}?"), f"{capital(many)} live {animal['home']}."
    if kind == 4:
        legs = int(animal["legs"])
        count = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"][legs]
        return either(rng,
            f"How many legs does {one} have?|How many legs do {many} have?|How many legs has {one} got?"), f"{capital(one)} has {count} legs." if name != "octopus" else "An octopus has eight arms."
    if kind == 5:
        baby = animal["baby"]
        return either(rng,
            f"What is a baby {name} called?|What do you call a baby {name}?|"
            f"What is the name of a baby {name}?|How do you call a young {name}?"), f"A baby {name} is called {a(baby)}."
    if kind in (6, 7):
        what = f"{capital(one)} is {a(animal['kind'])}" if animal["kind"] != name else f"{capital(one)} is a small animal"
        return either(rng,
            f"What is {one}?|What are {many}?|Tell me what {one} is.|What kind of animal is {one}?|"
            f"Explain what {one} is.|Describe {one} in one sentence.|Can you explain what {one} is?|"
            f"What is {a(name)}"), f"{what} that lives {animal['home']}." if name != "dragon" else "A dragon is a creature that lives only in stories."
    if kind in (8, 9):
        answer = f"{capital(many)} live {animal['home']} and eat {animal['food']}. {animal['fact']}."
        return either(rng,
            f"Tell me about {many}.|Tell me something about {many}.|What do you know about {many}?|"
            f"Tell me a fact about {many}.|Talk about {many}.|Tell me about the {name}.|"
            f"I want to know more about {many}.|Give me some facts about {many}.|Describe {one}.|"
            f"Write about {many}.|Write a paragraph about {many}.|Explain {many}.|"
            f"Write something about {many}.|{capital(many)}|Tell me more about {many}."), answer
    if kind == 10:
        yes = name in world.FLYERS
        return either(rng,
            f"Can {one} fly?|Can {many} fly?|Do {many} fly?"), f"Yes, {one} can fly." if yes else f"No, {one} cannot fly."
    yes = name in world.SWIMMERS
    return rng.choice([f"Can {one} swim?",
        f"Can {many} swim?"]), f"Yes, {one} can swim." if yes else f"No, {one} is not known as a swimmer."


def compare_animals(rng):
    while True:
        first, second = rng.sample(list(world.ANIMALS.values()), 2)
        if abs(int(first["size"]) - int(second["size"])) >= 2 and "dragon" not in (first["name"],
            second["name"]):
            break
    big, small = (first, second) if int(first["size"]) > int(second["size"]) else (second, first)
    one, two = a(first["name"]), a(second["name"])
    kind = rng.randrange(4)
    if kind == 0:
        return either(rng,
            f"Which is bigger, {one} or {two}?|What is bigger, {one} or {two}?|"
            f"Who is bigger, {one} or {two}?|What is larger, {one} or {two}?"), f"{capital(a(big['name']))} is bigger than {a(small['name'])}."
    if kind == 1:
        return rng.choice([f"Which is smaller, {one} or {two}?",
            f"What is smaller, {one} or {two}?"]), f"{capital(a(small['name']))} is smaller than {a(big['name'])}."
    if kind == 2:
        return f"Is {one} bigger than {two}?", f"Yes, {one} is bigger than {two}." if first is big else f"No, {one} is smaller than {two}."
    return f"Is {one} smaller than {two}?", f"Yes, {one} is smaller than {two}." if first is small else f"No, {one} is bigger than {two}."


def kind_of_animal(rng):
    animal = rng.choice([animal for animal in world.ANIMALS.values() if animal["kind"] in ("mammal", "bird",
        "fish", "insect", "reptile")])
    kind = rng.choice([animal["kind"], "animal",
        rng.choice("mammal bird fish insect reptile plant fruit car".split())])
    name = a(animal["name"])
    if kind in (animal["kind"], "animal"):
        return f"Is {name} {a(kind)}?", f"Yes, {name} is {a(kind)}."
    return f"Is {name} {a(kind)}?", f"No, {name} is {a(animal['kind'])}."


def colour_fact(rng):
    thing, colour = rng.choice(world.COLOURS)
    spelling = either(rng, "colour|colour|color")
    kind = rng.randrange(8)
    if kind <= 4:
        return either(rng,
            f"What {spelling} is {thing}?|Which {spelling} is {thing}?|What is the {spelling} of {thing}?|"
            f"What {spelling} does {thing} have?|Tell me the {spelling} of {thing}."), f"{capital(thing)} is {colour}."
    if kind == 5:
        other = rng.choice([c for c in world.LISTS["colours"] if c not in colour])
        if rng.random() < 0.5:
            return f"Is {thing} {colour}?", f"Yes, {thing} is {colour}."
        return f"Is {thing} {other}?", f"No, {thing} is {colour}."
    if kind == 6:
        one, two, result = rng.choice(world.MIXES)
        one, two = rng.sample([one, two], 2)
        return either(rng,
            f"What {spelling} do you get when you mix {one} and {two}?|What do {one} and {two} make?|"
            f"Mix {one} and {two}. What {spelling} is it?|What is {one} mixed with {two}?"), f"When you mix {one} and {two}, you get {result}."
    things = [row[0] for row in world.COLOURS if row[1] == colour]
    return either(rng,
        f"What is {colour}?|Name something {colour}.|Tell me something that is {colour}.|"
        f"What things are {colour}?"), f"{capital(pick(rng, things))} is {colour}."


def finish(rng):
    """'The sky is ...' and true-or-false."""
    thing, colour = rng.choice(world.COLOURS)
    roll = rng.random()
    if roll < 0.4:
        return either(rng,
            f"Complete the sentence: {capital(thing)} is|Finish the sentence: {capital(thing)} is ...|"
            f"Complete: {capital(thing)} is ___|{capital(thing)} is ..."), f"{capital(thing)} is {colour}."
    right = rng.random() < 0.5
    shown = colour if right else rng.choice([c for c in world.LISTS["colours"] if c not in colour])
    return either(rng,
        f"True or false: {thing} is {shown}.|True or false? {capital(thing)} is {shown}.|"
        f"Is it true that {thing} is {shown}?|Yes or no: is {thing} {shown}?"), f"Yes, {thing} is {colour}." if right else f"No, {thing} is {colour}."


def opposite_fact(rng):
    first, second = rng.choice(world.OPPOSITES)
    if rng.random() < 0.5 and first not in ("right",):
        first, second = second, first
    if first in ("light", "old", "right"):
        first, second = "big", "small"
    return either(rng,
        f"What is the opposite of {first}?|The opposite of {first}?|Opposite of {first}|"
        f"What's the opposite of {first}?|Tell me the opposite of {first}.|"
        f"What is the opposite of \"{first}\"?|Give me the opposite of {first}.|"
        f"What is the contrary of {first}?"), f"The opposite of {first} is {second}."


def capital_fact(rng, country=None):
    country, city, part, language = country or rng.choice(world.COUNTRIES)
    kind = rng.randrange(8)
    if kind <= 4:
        return either(rng,
            f"What is the capital of {country}?|What's the capital of {country}?|The capital of {country}?|"
            f"Which city is the capital of {country}?|Name the capital of {country}.|"
            f"Tell me the capital of {country}.|Capital of {country}|What is the capital city of {country}?|"
            f"What is the capital of {country}"), f"The capital of {country} is {city}."
    if kind == 5:
        return either(rng,
            f"Where is {country}?|On which continent is {country}?|In which part of the world is {country}?"), f"{capital(country)} is in {part}."
    if kind == 6:
        return either(rng,
            f"What language do people speak in {country}?|Which language is spoken in {country}?|"
            f"What do they speak in {country}?"), f"People in {country} speak {language}."
    return either(rng,
        f"Where is {city}?|In which country is {city}?|{city} is the capital of which country?|"
        f"What country is {city} in?"), f"{city} is the capital of {country}."


def calendar_fact(rng):
    kind = rng.randrange(9)
    day, month = rng.randrange(7), rng.randrange(12)
    days, months = world.DAYS, world.MONTHS
    if kind == 0:
        return either(rng,
            f"What day comes after {days[day]}?|Which day comes after {days[day]}?|"
            f"What day is after {days[day]}?|What comes after {days[day]}?|"
            f"If today is {days[day]}, what day is tomorrow?|Today is {days[day]}. What day is tomorrow?"), (
            f"The day after {days[day]} is {days[(day + 1) % 7]}.")
    if kind == 1:
        return either(rng,
            f"What day comes before {days[day]}?|Which day comes before {days[day]}?|"
            f"What comes before {days[day]}?|If today is {days[day]}, what day was yesterday?|"
            f"Today is {days[day]}. What day was yesterday?"), (
            f"The day before {days[day]} is {days[(day - 1) % 7]}.")
    if kind == 2:
        return either(rng,
            f"What month comes after {months[month]}?|Which month is after {months[month]}?|"
            f"What comes after {months[month]}?|What is the month after {months[month]}?"), f"The month after {months[month]} is {months[(month + 1) % 12]}."
    if kind == 3:
        return either(rng,
            f"What month comes before {months[month]}?|Which month is before {months[month]}?|"
            f"What comes before {months[month]}?"), f"The month before {months[month]} is {months[(month - 1) % 12]}."
    if kind == 4:
        return f"How many days does {months[month]} have?", f"{months[month]} has {world.MONTH_DAYS[month]} days{', and 29 in a leap year' if month == 1 else ''}."
    if kind == 5:
        season = rng.choice(world.SEASONS)
        return either(rng,
            f"What happens in {season}?|Tell me about {season}.|What is {season} like?|Describe {season}.|"
            f"Write a sentence about {season}."), world.SEASON_FACTS[season]
    if kind == 6:
        season = rng.randrange(4)
        return either(rng,
            f"What season comes after {world.SEASONS[season]}?|"
            f"Which season comes after {world.SEASONS[season]}?|What comes after {world.SEASONS[season]}?"), f"After {world.SEASONS[season]} comes {world.SEASONS[(season + 1) % 4]}."
    question, answer = rng.choice(world.AMOUNTS)
    return f"How many {question}?", answer


def definition(rng):
    word, answer = rng.choice(world.DEFINITIONS)
    subject = answer.split(" is " if " is " in answer else " was " if " was " in answer else " ")[0]
    subject = lower_first(subject) if " is " in answer or " was " in answer else word
    return either(rng,
        f"What is {subject}?|What is {subject}?|What's {subject}?|Explain {subject}.|"
        f"Tell me what {subject} is.|Can you explain what {subject} is?|Define {word}.|"
        f"What does \"{word}\" mean?|What does the word {word} mean?|Describe {subject} in one sentence.|"
        f"What do you know about {subject}?|Tell me about {subject}.|Say what {subject} is in one sentence.|"
        f"Do you know what {subject} is?|What is {subject}? Answer in one sentence.|{capital(word)}?|"
        f"What is {word}?|Explain {subject} to a child.|Explain {subject} in simple words.|"
        f"Explain in one sentence what {subject} is.|Describe {subject}.|"
        f"Explain {subject} to a five year old.|Explain {subject} like I am five.|"
        f"What exactly is {subject}?|What is the meaning of {word}?|Write a sentence about {subject}."), answer


def difference(rng):
    (first, one), (second, two) = rng.sample([row for row in world.DEFINITIONS if row[1].startswith(("A ",
        "An ", "The "))], 2)
    return either(rng,
        f"What is the difference between {a(first)} and {a(second)}?|"
        f"How is {a(first)} different from {a(second)}?|Compare {a(first)} and {a(second)}.|"
        f"What is the difference between {first} and {second}?"), f"{one} {two}"


def how_to(rng):
    task, answer = rng.choice(world.HOW_TOS)
    verb, _, thing = task.partition(" ")
    if verb in ("bake", "cook",
        "make") and thing.split()[-1] in "tea coffee sandwich egg rice pasta pancakes cake bread soup salad toast lemonade chocolate pizza popcorn cookies jam potatoes omelette".split() and rng.random() < 0.4:
        return either(rng,
            f"Give me a recipe for {thing}.|I need a recipe for {thing}.|Do you have a recipe for {thing}?|"
            f"What is the recipe for {thing}?|Tell me a recipe for {thing}.|Recipe for {thing}"), answer
    return either(rng,
        f"How do I {task}?|How do I {task}?|How can I {task}?|How to {task}?|How to {task}|"
        f"How do you {task}?|Tell me how to {task}.|Explain how to {task}.|Can you tell me how to {task}?|"
        f"What is the best way to {task}?|I want to {task}. How?|Teach me how to {task}.|I want to {task}.|"
        f"Give me tips to {task}.|How should I {task}?|Can you explain how to {task}?"), answer


def why(rng):
    question, answer = rng.choice(world.WHYS)
    question = question.replace("colour", either(rng, "colour|colour|color")).replace("favourite", either(rng,
        "favourite|favourite|favorite"))
    if question.startswith("What is ") and rng.random() < 0.2:
        question = "What's " + question[8:]
    return question, answer


def spelling(rng):
    kind = rng.randrange(6)
    if kind <= 2:
        word = rng.choice(world.SPELL)
        return either(rng,
            f"Spell {word}.|How do you spell {word}?|Spell the word {word}.|How is {word} spelled?|"
            f"Can you spell {word}?"), f"{'-'.join(word.upper())}."
    if kind == 3:
        word = rng.choice(world.SPELL)
        which = rng.choice(["first", "last"])
        return either(rng,
            f"What is the {which} letter of {word}?|What is the {which} letter of the word {word}?|"
            f"Which letter is the {which} one in {word}?"), f"The {which} letter of {word} is {word[0 if which == 'first' else -1].upper()}."
    letters = string.ascii_uppercase
    at = rng.randrange(1, 25)
    if kind == 4:
        return rng.choice([f"What letter comes after {letters[at]}?",
            f"Which letter is after {letters[at]}?"]), f"The letter after {letters[at]} is {letters[at + 1]}."
    return rng.choice([f"What letter comes before {letters[at]}?",
        f"Which letter is before {letters[at]}?"]), f"The letter before {letters[at]} is {letters[at - 1]}."


def rhyme(rng):
    family = rng.choice(world.RHYMES)
    word = rng.choice(family)
    others = [other for other in family if other != word]
    return either(rng,
        f"What rhymes with {word}?|Give me a word that rhymes with {word}.|Find a rhyme for {word}.|"
        f"Which words rhyme with {word}?"), f"{capital(pick(rng, others))} rhymes with {word}."


def one_fact(rng, about):
    """(question, answer) from the tables."""
    maker = rng.choices([lambda: animal_fact(rng, about), lambda: compare_animals(rng),
        lambda: colour_fact(rng), lambda: opposite_fact(rng), lambda: capital_fact(rng),
                         lambda: calendar_fact(rng), lambda: definition(rng), lambda: how_to(rng),
                             lambda: why(rng), lambda: spelling(rng), lambda: rhyme(rng),
                             lambda: difference(rng), lambda: kind_of_animal(rng), lambda: finish(rng)],
                        [14, 5, 7, 5, 10, 8, 20, 12, 18, 3, 1, 1.5, 1.5, 2])[0]
    return maker()


def fact(rng, about):
    question, answer = one_fact(rng, about)
    turns = [(ask(rng, question), answer)]
    if rng.random() < 0.12:
        turns.append((either(rng,
            "Can you repeat that?|Say that again.|Repeat that, please.|Again, please.|"
            "Can you say that again?|What did you say?|Repeat your answer."), answer))
    elif rng.random() < 0.06:
        turns.append((either(rng, "Are you sure?|Is that right?|Really?|Is that true?"),
            "Yes, as far as I know. But I am a very small model and I make mistakes."))
    return turns


def fact_chain(rng, about):
    """'And of Italy?': the second question depends on the first."""
    kind = rng.randrange(5)
    if kind == 0:
        first, second, third = rng.sample(world.COUNTRIES, 3)
        turns = [(ask(rng, f"What is the capital of {first[0]}?"),
            f"The capital of {first[0]} is {first[1]}.")]
        for country in (second, third)[:rng.choice([1, 1, 2])]:
            turns.append((either(rng,
                f"And of {country[0]}?|And {country[0]}?|What about {country[0]}?|and of {country[0]}|"
                f"How about {country[0]}?"), f"The capital of {country[0]} is {country[1]}."))
        return turns
    if kind == 1:
        first, second = rng.sample([animal for animal in world.ANIMALS.values()
            if animal["name"] in "cow dog cat sheep pig horse duck chicken goat donkey mouse".split()], 2)
        return [(ask(rng, f"What sound does {a(first['name'])} make?"),
            f"{capital(a(first['name']))} says {first['sound']}."),
                (either(rng,
                    f"And {a(second['name'])}?|What about {a(second['name'])}?|And the {second['name']}?|"
                    f"How about {a(second['name'])}?"),
                        f"{capital(a(second['name']))} says {second['sound']}.")]
    if kind == 2:
        (first, colour), (second, other) = rng.sample(world.COLOURS, 2)
        return [(ask(rng, f"What colour is {first}?"), f"{capital(first)} is {colour}."),
                (either(rng, f"And {second}?|What about {second}?|How about {second}?"),
                    f"{capital(second)} is {other}.")]
    if kind == 3:
        first, second = rng.sample([row for row in world.OPPOSITES if row[0] not in ("light", "old",
            "right")], 2)
        return [(ask(rng, f"What is the opposite of {first[0]}?"),
            f"The opposite of {first[0]} is {first[1]}."),
                (either(rng,
                    f"And of {second[0]}?|And {second[0]}?|What about {second[0]}?"),
                        f"The opposite of {second[0]} is {second[1]}.")]
    first, second = rng.sample(list(world.ANIMALS.values()), 2)
    many, others = several(first["name"]), several(second["name"])
    what = rng.choice(["eat", "live"])
    reply = (lambda animal: f"{capital(several(animal['name']))} eat {animal['food']}.") if what == "eat" else (lambda animal: f"{capital(several(animal['name']))} live {animal['home']}.")
    return [(ask(rng, f"What do {many} eat?" if what == "eat" else f"Where do {many} live?"), reply(first)),
            (either(rng, f"And {others}?|What about {others}?|How about {others}?"), reply(second))]
