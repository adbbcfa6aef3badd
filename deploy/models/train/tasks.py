"""Things to write on request: lists, jokes, riddles, letters, plans, words to repeat."""

import world
from choose import capital, either, join_words, pick
from phrasing import lower_first, pseudo_word, request
from sums import words_of
from world import a, several


def listing(rng, about):
    kind, members = rng.choice(list(world.LISTS.items()))
    count = rng.choice([2, 3, 3, 3, 4, 5, 5])
    count = min(count, len(members))
    start = 0 if rng.random() < 0.6 else rng.randrange(len(members) - count + 1)
    chosen = members[start:start + count]
    shown = rng.choice([str(count), words_of(count), words_of(count)])
    spelled = kind.replace("colours", either(rng, "colours|colours|colors"))
    verb = either(rng, "name|list|give me|tell me|name|list|write down|show me")
    if rng.random() < 0.15:
        count, chosen = 3, members[:3]
        phrase = either(rng,
            f"{verb} some {spelled}|{verb} a few {spelled}|give me a list of {spelled}|"
            f"make a list of {spelled}|give me examples of {spelled}")
    else:
        phrase = f"{verb} {shown} {spelled}"
    if verb == "list" or "list" in phrase:
        answer = "\n".join(f"{index + 1}. {capital(member)}" for index, member in enumerate(chosen))
    else:
        answer = f"{capital(words_of(count))} {kind} are {join_words(chosen)}."
    turns = [(request(rng, phrase), answer)]
    rest = [member for member in members if member not in chosen]
    if rest and rng.random() < 0.25:
        extra = rest[0]
        turns.append((either(rng,
            "One more, please.|Another one?|Give me one more.|And one more?|Do you know another one?|"
            "one more"), f"One more is {extra}."))
    return turns


def joke(rng, about):
    many = rng.sample(world.JOKES, 3)
    turns = []
    question, answer = pick(rng, world.JOKES)
    turns.append((request(rng, either(rng,
        "tell me a joke|tell me a joke|tell a joke|tell me something funny|make me laugh|"
        "tell me a funny joke|say something funny|tell me a good joke|give me a joke|tell me a short joke")),
                  f"{question} {answer}"))
    for question, answer in [item for item in many if item[0] not in turns[0][1]][:rng.choice([0, 0, 1, 2])]:
        turns.append((either(rng,
            "Another one!|Another joke, please.|One more|Tell me another one.|Another one please|"
            "Do you know another joke?|One more joke!|again|more jokes"), f"{question} {answer}"))
    return turns


def riddle(rng, about):
    question, answer = pick(rng, world.RIDDLES)
    turns = [(request(rng, either(rng,
        "tell me a riddle|give me a riddle|ask me a riddle|ask me a question|tell me a hard riddle")),
            f"Here is a riddle: {lower_first(question)}")]
    right = rng.random() < 0.4
    guess = lower_first(answer.rstrip(".")) if right else either(rng,
        "I do not know|a dog?|no idea|tell me|What is it?|I give up|a house|I don't know|"
        "What is the answer?|A bird?")
    turns.append((guess, f"Yes, that is right! It is {lower_first(answer)}" if right
        else f"The answer is: {lower_first(answer)}"))
    return turns


def fun_fact(rng, about):
    first, second = pick(rng, world.FUN_FACTS), rng.choice(world.FUN_FACTS)
    turns = [(request(rng, either(rng,
        "tell me a fun fact|tell me something interesting|tell me a fact|teach me something|"
        "tell me something new|tell me an interesting fact|give me a fun fact|"
        "tell me something I do not know|share a fact")),
              first)]
    if second != first and rng.random() < 0.4:
        turns.append((either(rng,
            "Another one!|One more, please.|Another fact?|Tell me another one.|More"), second))
    return turns


WHOM = "grandmother|grandfather|mother|father|friend|best friend|teacher|boss|brother|sister|aunt|uncle|neighbour|doctor|girlfriend|boyfriend|wife|husband|son|daughter|colleague|cousin".split("|")


def letter(rng, about):
    whom = rng.choice(WHOM)
    name = rng.choice(world.HUMAN_NAMES)
    address = capital(whom) if rng.random() < 0.6 else name
    shown = f"my {whom}" if address != name else rng.choice([name, f"my friend {name}"])
    kind = rng.randrange(4)
    if kind == 0:
        what, body = either(rng,
            "a letter|a short letter|an email|a message|a nice letter|a note"), "I hope that you are well. I think of you often, and I hope that we will see each other soon."
    elif kind == 1:
        what, body = either(rng,
            "a birthday card|a birthday wish|a birthday message|birthday wishes"), "Happy birthday to you! I wish you a day full of joy and a year full of good things."
    elif kind == 2:
        what, body = either(rng,
            "a thank you note|a thank you card|a thank you letter|a thank you message"), "Thank you very much for your kind help. It made me very happy, and I will not forget it."
    else:
        what, body = either(rng,
            "an apology|a sorry note|a letter to say sorry|a message to say sorry"), "I am sorry for what I did. I did not want to hurt you, and I hope that we can be friends again."
    verb = either(rng, "write|write|write me|help me write")
    return [(request(rng, f"{verb} {what} {'for' if 'card' in what or 'wish' in what else 'to'} {shown}"),
        f"Dear {address},\n\n{body}\n\nWith best wishes")]


PLANS = [("plan my day|make a plan for my day|plan my day for me|make a plan for today|plan my Sunday|make a "
    "schedule for my day",
          "In the morning you could have a good breakfast and do your most important work. At noon you could "
              "eat something light and go for a walk. In the evening you could meet a friend or read a book."),
         ("give me an idea for a story|give me a story idea|give me an idea for a book|suggest a topic for a "
             "story", "You could write about a small fox who finds a golden key and looks for the door that "
             "it opens."),
         ("give me an idea for a present|suggest a gift for my mother|give me a gift idea|suggest a gift for "
             "a friend|suggest a birthday present", "A good book, some flowers or something you made "
             "yourself is a good gift."),
         ("give me some advice|give me advice|give me good advice|give me a tip|tell me something wise|give "
             "me a quote|say something wise|tell me a proverb|motivate me|say something nice|inspire me|"
             "encourage me|say something kind|give me a compliment|tell me a secret of happiness",
          "Take one small step every day, be kind to others, and do not be too hard on yourself."),
         ("play a game with me|play a game|let us play a game|play with me|suggest a game",
             "Let us play! I am thinking of an animal that is grey, very big and has a trunk. What is it?"),
         ("sing a song|sing me a song|sing something|sing for me|sing a lullaby",
             "I cannot sing aloud, but here are the words: Twinkle, little light, shine for me tonight."),
         ("give me three tips for sleeping better|give me tips for better sleep|give me tips for a good "
             "night's sleep", "1. Go to bed at the same time every day.\n2. Keep your room dark and "
             "cool.\n3. Do not look at a screen before you sleep."),
         ("give me three tips for staying healthy|give me tips to be healthy|give me health tips|tell me how "
             "to live a healthy life|give me some healthy habits",
             "1. Eat fruit and vegetables.\n2. Move a little every day.\n3. Sleep enough and drink water."),
         ("give me three tips for learning|give me study tips|give me tips for studying|give me three tips "
             "for school|give me tips for an exam", "1. Find a quiet place.\n2. Learn a little every "
             "day.\n3. Explain what you learned in your own words."),
         ("give me three tips for making friends|give me tips to make friends|tell me how to be more social",
             "1. Smile and say hello.\n2. Ask people about the things they like.\n3. Listen well and be kind."),
         ("say the alphabet|tell me the alphabet|recite the alphabet|write the alphabet|write down the "
             "letters of the alphabet", "A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, "
             "W, X, Y, Z."),
         ("name the vowels|tell me the vowels|list the vowels", "The vowels are A, E, I, O and U.")]


def plan(rng, about):
    users, answer = rng.choice(PLANS)
    turns = [(request(rng, rng.choice(users.split("|"))), answer)]
    if answer.startswith("Let us play!"):
        right = rng.random() < 0.5
        turns.append((either(rng,
            "an elephant|Elephant|Is it an elephant?|elephant!|It is an elephant.") if right else either(rng,
                "a mouse|a dog?|I don't know|Is it a cat?|a lion"), "Yes, that is right! It is an elephant."
                    if right else "No, it is an elephant. But that was a good try!"))
    return turns


def say(rng, about):
    """Copying: words, phrases and made-up words are returned unchanged."""
    count = rng.choice([1, 1, 2, 3, 3, 4, 5])
    pool = rng.choice([world.SPELL, [row[0] for row in world.DEFINITIONS], list(world.ANIMALS),
        world.HUMAN_NAMES, None, None])
    words = [rng.choice(pool) if pool else pseudo_word(rng) for _ in range(count)]
    phrase = " ".join(words)
    if rng.random() < 0.35:
        phrase = either(rng,
            "this is a test|hello|good morning|I like {0}|the {0} is here|hello {0}|yes|I am happy|"
            "the {0} and the {0}|one two three|we love {0}|good night|hi|thank you|my {0} is big|"
            "the cat is on the table|it is a nice day|all is well").format(words[0])
    quote = either(rng, "||\"|'")
    end = either(rng, "|.|!")
    user = either(rng,
        "Say {}|Repeat after me: {}|Say: {}|Please say {}|Repeat: {}|Can you say {}|Repeat this: {}|Say {}|"
        "Just say {}|Only say {}|Write {}|Echo {}").format(f"{quote}{phrase}{quote}{end}")
    return [(user, capital(phrase) + (end or "."))]


def one_sentence(rng, about):
    roll = rng.random()
    if roll < 0.5:
        word, answer = rng.choice(world.DEFINITIONS)
        return [(request(rng,
            f"{rng.choice(['say something about', 'write a sentence about', 'write one sentence about', 'make a sentence with the word', 'use in a sentence the word', 'write a sentence with', 'describe in one sentence'])} {word}"), answer)]
    animal = rng.choice(list(world.ANIMALS.values()))
    return [(request(rng,
        f"{rng.choice(['say something about', 'write a sentence about', 'write one sentence about', 'write a short text about'])} {rng.choice([several(animal['name']), 'the ' + animal['name'], a(animal['name'])])}"), animal["fact"] + ".")]
