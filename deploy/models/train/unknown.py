"""Questions from outside the model's world, which it answers by admitting that it does not know."""

import string

import world
from choose import capital, either
from phrasing import ask, lower_first, pseudo_word, request
from small_talk import ABILITIES
from world import a, several

UNKNOWN = ["I do not know that. I am a very small model, and I only know simple things."]


def odd_topic(rng):
    return rng.choice(world.ODD_TOPICS) if rng.random() < 0.6 else pseudo_word(rng) if rng.random() < 0.7 else pseudo_word(rng) + " " + rng.choice("theory law system engine method market effect model syndrome treaty".split())


ODD_ATTRIBUTES = "population|area|president|prime minister|currency|history|national anthem|flag|economy|average temperature|price|weight|cost|density|melting point|chemical formula|Latin name|lifespan|mass|origin|inventor|best brand|molecular structure|market value|speed limit|phone number|address|gross national product|discovery date|national dish|constitution|birth rate|king".split("|")
ODD_WORKS = "the telephone|the light bulb|penicillin|the printing press|radium|the steam engine|the internet|the Mona Lisa|Guernica|Hamlet|Don Quixote|War and Peace|The Hobbit|The Lord of the Rings|Star Wars|Titanic|The Magic Flute|the ninth symphony|the World Cup in 2014|the Super Bowl|the Nobel Prize in 2020|the Oscar for best film|the election|the Tour de France|Microsoft|Google|Amazon|Apple|the Red Cross|Facebook|the wheel|dynamite|the airplane|the telescope|Moby Dick|Pride and Prejudice|the Bible|the Matrix|Frankenstein|Minecraft|Tetris|Linux|the first car|the battle of Waterloo".split("|")
ODD_EVENTS = "World War One|World War Two|the French Revolution|the Cold War|the moon landing|the Titanic disaster|the American Civil War|the Renaissance|the stone age|the ice age|the fall of the Berlin Wall|the battle of Hastings|the first Olympic Games|the industrial revolution|the great fire of London|Brexit|the gold rush|the space race|the Black Death".split("|")
ODD_VERBS = "buy|order|open|close|send|play|download|install|fix|repair|book|call|drive|build|hack|analyse|review|compile|deploy|delete|print|scan|find|check|watch|edit|upload|record|sell|rent|update|reboot|clean|translate|proofread|optimise|implement|design|refactor|configure".split("|")
ODD_OBJECTS = "a pizza|my car|the window|a movie|this file|my code|the report|a ticket|a taxi|the server|an invoice|this image|a spreadsheet|a presentation|my email|a website|an app|the database|a video game|my phone|the door|the news|this video|a flight|a hotel|my essay|a linked list|a web page|an API|a song|my bank account|a neural network|the kitchen|my printer|the lights|a table reservation|my calendar|a logo".split("|")


def odd_question(rng):
    """A known form of question with an unknown answer, so that the form alone does not make the model guess."""
    kind = rng.randrange(5)
    if kind == 0:
        of = rng.choice([rng.choice(world.COUNTRIES)[0], rng.choice(world.COUNTRIES)[1],
            rng.choice(world.DEFINITIONS)[0], several(rng.choice(list(world.ANIMALS))),
            rng.choice(world.ODD_TOPICS), capital(pseudo_word(rng))])
        attribute = rng.choice(ODD_ATTRIBUTES)
        return either(rng,
            f"What is the {attribute} of {of}?|Tell me the {attribute} of {of}.|"
            f"What's the {attribute} of {of}?|Do you know the {attribute} of {of}?")
    if kind == 1:
        return f"Who {rng.choice('invented discovered wrote painted founded won directed composed made created built designed'.split())} {rng.choice(ODD_WORKS)}?"
    if kind == 2:
        event = rng.choice(ODD_EVENTS)
        return either(rng,
            f"When did {event} start?|When did {event} end?|When was {event}?|What caused {event}?|"
            f"What happened in {event}?|Why did {event} happen?|What year was {event}?|"
            f"Tell me about {event}.|Who won {event}?|What were the effects of {event}?")
    if kind == 3:
        year = rng.randint(1000, 2030)
        return either(rng,
            f"What happened in {year}?|Who was king in {year}?|Who won in {year}?|"
            f"What was invented in {year}?|Who was president in {year}?|What happened in the year {year}?")
    return either(rng,
        f"How many {rng.choice('people houses cars trees bridges lakes shops stars fish schools dogs words islands rivers'.split())} are there in {rng.choice([rng.choice(world.COUNTRIES)[0], rng.choice(world.COUNTRIES)[1], 'the world', 'my town'])}?|"
        f"How much does {a(rng.choice(world.DEFINITIONS)[0])} cost?|"
        f"How much does {a(rng.choice(list(world.ANIMALS)))} weigh?|"
        f"How far is it from {rng.choice(world.COUNTRIES)[1]} to {rng.choice(world.COUNTRIES)[1]}?|"
        f"How tall is {rng.choice(world.ODD_PEOPLE)}?|How fast is {a(rng.choice(list(world.ANIMALS)))}?|"
        f"How old is {rng.choice(world.COUNTRIES)[1]}?|"
        f"What is the best {rng.choice('restaurant hotel phone car movie school laptop band team company song brand'.split())} in {rng.choice(world.COUNTRIES)[1]}?")


def unknown(rng, about):
    roll = rng.random()
    if roll < 0.3:
        topic = odd_topic(rng)
        user = either(rng,
            "Explain {}.|Explain {}|What is {}?|What is {}?|What do you know about {}?|Tell me about {}.|"
            "Tell me everything about {}.|How does {} work?|Can you explain {}?|Explain {} to me.|"
            "Explain {} in simple words.|Explain {} to a child.|Do you know {}?|What are the basics of {}?|"
            "Why is {} important?|Teach me {}.|I want to learn about {}.|Give me a summary of {}.|"
            "Write about {}.|Help me with {}.|What does {} mean?|Define {}.|Describe {}.|"
            "What do you think about {}?|I have a question about {}.|Can you help me with {}?|"
            "Who invented {}?|When was {} invented?").format(topic)
        if len(topic) < 16 and rng.random() < 0.35:
            return [(ask(rng, user), f"I do not know anything about {topic}. I am a very small model, and I "
                f"only know simple things.")]
        return [(ask(rng, user), UNKNOWN[0])]
    if roll < 0.4:
        person = rng.choice(world.ODD_PEOPLE) if rng.random() < 0.7 else capital(pseudo_word(rng)) + " " + capital(pseudo_word(rng))
        user = either(rng,
            "Who is {}?|Who was {}?|Tell me about {}.|When was {} born?|What did {} do?|Do you know {}?|"
            "Where was {} born?|Who was {} and what did he do?|How old is {}?|Why is {} famous?|"
            "Where does {} live?").format(person)
        return [(ask(rng, user), UNKNOWN[0] if rng.random() < 0.65 else f"I do not know {person}. I am a very small model, and I only know simple "
            f"things.")]
    if roll < 0.48:
        word = pseudo_word(rng)
        user = either(rng,
            "What is the capital of {}?|Where is {}?|How far is {}?|Who is the king of {}?|"
            "How many people live in {}?|What language do they speak in {}?").format(capital(word))
        return [(ask(rng, user), UNKNOWN[0] if rng.random() < 0.65 else f"I do not know {capital(word)}. I am a very small model, and I only know "
            f"simple things.")]
    if roll < 0.56:
        word = pseudo_word(rng)
        user = either(rng,
            "What is a {}?|What does a {} eat?|What sound does a {} make?|What colour is a {}?|"
            "Where does a {} live?|How many legs does a {} have?|What is the opposite of {}?|Can a {} fly?|"
            "How do I make a {}?").format(word)
        return [(ask(rng, user), UNKNOWN[0] if rng.random() < 0.65 else f"I do not know the word {word}. I am a very small model, and I only know "
            f"simple things.")]
    if roll < 0.62:
        # Keyboard noise.
        letters = rng.choice([string.ascii_lowercase, "asdfghjkl", "qwertyuiop",
            string.ascii_lowercase + string.digits + "!?#%"])
        noise = "".join(rng.choice(letters + " " * rng.randint(0, 4)) for _ in range(rng.randint(3,
            25))).strip() or "zzz"
        return [(noise, "I am sorry, I do not understand that. Can you say it in another way?")]
    if roll < 0.66:
        foreign = either(rng,
            "Bonjour|Hola|Guten Tag|Ciao|Comment ça va ?|Wie geht es dir?|¿Cómo estás?|Hallo|Buongiorno|"
            "Olá|Привет|こんにちは|你好|안녕하세요|नमस्ते|مرحبا|Merhaba|Hej|Was ist das?|Qui es-tu ?|¿Quién eres?|"
            "Wer bist du?|Qu'est-ce que c'est ?|Erzähl mir eine Geschichte|Cuéntame una historia|"
            "Como te llamas?|Привет, как дела?|你是谁?|おはよう|Salut|Dzień dobry|Γειά σου|שלום|Je ne sais pas")
        return [(foreign, "I am sorry, I only understand simple English.")]
    if roll < 0.7:
        emoji = either(rng, "😀|👍|❤️|😂|😢|🎉|🙏|🦊|👋|😎|🤔|🚀|🌍|🔥") * rng.randint(1, 3)
        return [(emoji, "I am sorry, I cannot read pictures. Can you say it in words?")]
    if roll < 0.73:
        language = either(rng, "French|Spanish|German|Italian|Japanese|Chinese|Latin|Russian|Greek|Polish|Dutch|Swahili")
        phrase = either(rng, "hello|good morning|I love you|thank you|good night|how are you|the cat is black|my friend|goodbye|water|yes")
        quote = rng.choice(["", "'", '"'])
        phrase = f"{quote}{phrase}{quote}"
        return [(either(rng, f"Translate {phrase} to {language}.|Translate {phrase} into {language}|How do you say {phrase} in {language}?|"
                        f"What is {phrase} in {language}?|Say {phrase} in {language}.|Can you translate {phrase} to {language}?"),
                 f"I am sorry, I do not know {language}. I speak only simple English.")]
    if roll < 0.8:
        return [(ask(rng, odd_question(rng)), UNKNOWN[0])]
    if roll < 0.86:
        task = f"{rng.choice(ODD_VERBS)} {rng.choice(ODD_OBJECTS)}"
        return [(request(rng, task), "I am sorry, I cannot do that. I am a very small model. " + ABILITIES)]
    task = rng.choice(world.ODD_REQUESTS)
    question = task.split()[0] in "What Who When How Where Which Can Is Are Why".split()
    if question:
        user = ask(rng, task + "?")
    else:
        user = request(rng, lower_first(task))
    if question and task.split()[0] != "Can":
        return [(user, UNKNOWN[0])]
    return [(user, "I am sorry, I cannot do that. I am a very small model. " + ABILITIES)]
