"""Requests for a story, the story, and questions about it."""

import stories
import world
from choose import either, pick
from phrasing import lower_first, pseudo_word, request
from world import a


def asked_story(rng, verb, word):
    """A story whose theme, hero or problem the user names."""
    roll = rng.random()
    if roll < 0.3:
        theme = rng.choice(list(stories.THEMES))
        made = stories.make_story(rng, kind=pick(rng, list(stories.HEROES), theme))
        plot = stories.PLOTS[pick(rng, stories.THEMES[theme])]
        return request(rng, f"{verb} a {word} about {theme}"), stories.tell(rng, made, plot=plot), made
    if roll < 0.6:
        made = stories.make_story(rng, kind=rng.choice(list(stories.HEROES)))
        clause, plot = rng.choice(stories.CLAUSES)
        made.trait = rng.choice([made.trait, rng.choice(stories.MORE_TRAITS)])
        trait = made.trait + " " if rng.random() < 0.3 or made.trait in stories.MORE_TRAITS else ""
        phrase = f"{verb} a {word} about {a(trait + made.kind)} who {clause.format(**stories.slots(made))}"
        return request(rng, phrase), stories.tell(rng, made, plot=stories.PLOTS[plot]), made
    if roll < 0.75:
        he = rng.random() < 0.5
        name = rng.choice(stories.NAMES_HE if he else stories.NAMES_SHE)
        made = stories.make_story(rng, kind="boy" if he else "girl", name=name)
        return request(rng, f"{verb} a {word} about {name}"), stories.tell(rng, made), made
    kind = rng.choice([rng.choice(stories.MORE_HEROES).replace("~", " "), rng.choice(world.DEFINITIONS)[0],
        pseudo_word(rng)])
    made = stories.make_story(rng, kind=kind)
    return request(rng, f"{verb} a {word} about {a(kind)}"), stories.tell(rng, made), made


def story(rng, about):
    if rng.random() < 0.02:
        made = stories.make_story(rng, kind=pick(rng, list(stories.HEROES)))
        return [(either(rng, "Once upon a time|Once upon a time...|Once upon a time, there was|There once was"),
                 stories.tell(rng, made))]
    kind = rng.choice(list(stories.HEROES))
    asked_thing = rng.choice(stories.OBJECTS) if rng.random() < 0.7 else rng.choice([row[0]
        for row in world.DEFINITIONS[20:150]])
    friend = rng.choice(stories.FRIENDS)
    name = rng.choice(stories.NAMES_HE + stories.NAMES_SHE + world.HUMAN_NAMES)
    style = rng.random()
    word = either(rng,
        "story|story|story|short story|little story|tale|bedtime story|fairy tale|nice story|short tale")
    verb = either(rng, "tell me|tell me|write|tell|write me|give me|make up")
    if style < 0.2:
        made = stories.make_story(rng, kind=pick(rng, list(stories.HEROES)))
        phrase = f"{verb} a {word}"
    elif style < 0.55:
        made = stories.make_story(rng, kind=kind)
        phrase = f"{verb} a {word} {rng.choice(['about', 'about', 'with', 'of'])} {a(kind)}"
        if rng.random() < 0.2:
            made.trait = rng.choice(stories.TRAITS + stories.MORE_TRAITS)
            phrase = f"{verb} a {word} about {a(made.trait + ' ' + kind)}"
    elif style < 0.68 and kind not in stories.PEOPLE_HE | stories.PEOPLE_SHE:
        if friend == kind:
            friend = "mouse" if kind != "mouse" else "cat"
        made = stories.make_story(rng, kind=kind, friend=friend)
        phrase = f"{verb} a {word} about {a(kind)} and {a(friend)}"
    elif style < 0.82:
        made = stories.make_story(rng, kind=kind, thing=asked_thing if not asked_thing.endswith("s")
            else None)
        if kind + asked_thing and made.thing != asked_thing:
            phrase = f"{verb} a {word} about {a(kind)}"
        else:
            made.trait = rng.choice([made.trait, rng.choice(stories.MORE_TRAITS)])
            adjective = made.trait + " " if rng.random() < 0.3 or made.trait in stories.MORE_TRAITS else ""
            phrase = f"{verb} a {word} about {a(adjective + kind)} and {a(made.thing)}"
    else:
        made = stories.make_story(rng, kind=kind, name=name)
        phrase = f"{verb} a {word} about {a(kind)} {rng.choice(['named', 'called'])} {name}"
    length = rng.random()
    if length < 0.1:
        phrase = phrase.replace(word, either(rng, "very short story|tiny story|two-sentence story"))
        text = stories.tell_tiny(rng, made)
    elif length < 0.2:
        phrase = phrase.replace(word, either(rng, "long story|longer story|very long story"))
        text = stories.tell_long(rng, made)
    else:
        plot = None
        if "and" in phrase and made.thing in phrase:
            plot = pick(rng, [plot for plot in stories.PLOTS
                if "{thing}" in str(plot[2]) or "{a_thing}" in str(plot[2])], kind)
        text = stories.tell(rng, made, with_moral=True if rng.random() < 0.1 else None, plot=plot)
        if "The moral" in text and rng.random() < 0.4:
            phrase += " with a moral"
    user = request(rng, phrase)
    if rng.random() < 0.12 and length >= 0.2:
        user = either(rng,
            f"Story!|A story, please.|A story about {a(kind)}, please.|"
            f"I want to hear a story about {a(kind)}.|Do you know a story about {a(kind)}?|"
            f"Once upon a time there was {a(kind)}... please go on.|"
            f"I would like to hear a story about {a(kind)}.|Can you write a story with {a(kind)} in it?|"
            f"story about {a(kind)}")
        if "story about" not in user and kind not in user:
            made = stories.make_story(rng, kind=pick(rng, list(stories.HEROES)))
        else:
            made = stories.make_story(rng, kind=kind)
        text = stories.tell(rng, made)
    if 0.2 <= length and rng.random() < 0.3:
        user, text, made = asked_story(rng, verb, word)
    turns = [(user, text)]
    while rng.random() < 0.45 and len(turns) < 5:
        turns.append(rng.choice([
            (either(rng,
                "What is the moral of the story?|What is the moral?|What can I learn from it?|"
                "What do we learn from this story?|And the moral?"),
                    f"The moral of the story is: {lower_first(made.moral)}."),
            (either(rng,
                f"What was the name of the {made.kind}?|What is the name of the {made.kind}?|"
                f"How was the {made.kind} called?|What is the {made.kind} called?|Who was the story about?|"
                "What was the name of the hero?|Who is the hero of the story?|What was the hero called?|"
                "What is the name of the main character?"),
                    f"The {made.kind} was called {made.name}."),
            (either(rng,
                f"Where did the {made.kind} live?|Where did {made.name} live?|Where does {made.name} live?"),
                    f"{made.name} lived {made.home}."),
            (either(rng,
                "What was the story about?|Can you sum it up?|Summarize the story.|"
                "What happened in the story?|Say it in one sentence.|Tell it in one sentence."),
                    f"It was about how {made.event}." if made.event else "It was about friends."),
            (either(rng,
                f"Who was {made.name}'s friend?|Who was the friend of the {made.kind}?|"
                f"Who is {made.friend_name}?|Who was the friend?"),
                    f"{made.friend_name} the {made.friend} was the friend of {made.name}."),
            (either(rng,
                f"What kind of animal was {made.name}?|What was {made.name}?|Who was {made.name}?"),
                    f"{made.name} was {a(made.trait + ' ' + made.kind)}."),
        ]))
    if rng.random() < 0.12:
        other = stories.make_story(rng)
        turns.append((either(rng,
            "Another one, please.|Tell me another story.|One more story!|Another story please|"
            f"Now one about {a(other.kind)}.|And one about {a(other.kind)}?"), ""))
        if other.kind not in turns[-1][0]:
            other = stories.make_story(rng, kind=pick(rng, list(stories.HEROES)))
        turns[-1] = (turns[-1][0], stories.tell(rng, other))
    if len(turns) > 1 and length < 0.2:
        turns = turns[:1]
    return turns
