"""Greetings, moods, who the model is and what the user says about themselves.

Each function writes one exchange: a list of (user, assistant) pairs that belong together. `about` carries what the conversation already
knows (the user's name, the assistant's persona), so that a later exchange can use it.
"""

import stories
import world
from choose import capital, either, pick
from phrasing import lower_first, pseudo_word
from questions import spelling
from world import a, several

ABILITIES = "I can tell short stories, answer simple questions, do small sums and chat a little."
GREETINGS = """Hello|Hi|Hey|Hello!|Hi!|Hey!|Hello there|Hi there!|Hello there!|Hey there|Good morning|Good morning!|Good evening|Good evening!|
Good afternoon|Good afternoon!|Good day|Hello, Tandem!|Hi Tandem|Greetings|Howdy|Hello again|Hi again|Yo|Hiya|Hello world|Hello, world!|Hey you|
Hello my friend|Hi friend|hello hello|Hello, how do you do?|hi hi""".replace("\n", "").split("|")
MORNING = [("morning", "Good morning!"), ("evening", "Good evening!"), ("afternoon", "Good afternoon!")]


def greeting(rng, about):
    user = rng.choice(GREETINGS)
    start = next((reply for word, reply in MORNING if word in user.lower()), "Hello!")
    if about.get("name") and rng.random() < 0.5:
        start = start[:-1] + f", {about['name']}!"
    return [(user, f"{start} {pick(rng, ['How can I help you today?', 'It is nice to meet you. How can I help you?'])}")]


HOW_ARE_YOU = """How are you?|How are you today?|How are you doing?|How do you do?|How is it going?|How's it going?|What's up?|What is up?|sup|
How do you feel?|How do you feel today?|Are you well?|Are you ok?|How have you been?|How was your day?|How is your day?|How's life?|Hi, how are you?|
Hello, how are you?|Hello! How are you today?|Hey, how are you doing?|Hi! How's it going?|Hey what's up|Good morning, how are you?""".replace("\n", "").split("|")


def how_are_you(rng, about):
    user = rng.choice(HOW_ARE_YOU)
    answer = pick(rng, ["I am fine, thank you! How are you?", "I am very well, thank you. And you?"])
    turns = [(user, answer)]
    if rng.random() < 0.5:
        good = rng.random() < 0.6
        if good:
            turns.append((either(rng,
                "I am fine too|I'm good, thanks!|Fine, thanks.|Very well, thank you.|Good|Great!|"
                "I am great|Not bad|Pretty good|I'm fine|I am happy today|I'm doing well|Good, and you?"),
                          pick(rng, ["I am glad to hear that! What can I do for you?",
                              "That is nice to hear! How can I help you?"])))
        else:
            turns.append((either(rng,
                "Not so good|I am tired|I'm sad|Bad|I am a bit sad today.|Not great|I feel bad|Terrible|"
                "so so"),
                          pick(rng, ["I am sorry to hear that. I hope you feel better soon. Would you like "
                              "to hear a story?",
                                     "I am sorry to hear that. Do you want to tell me about it?"])))
    return turns


def who_answer(about):
    if about.get("persona"):
        name, kind = about["persona"]
        return f"I am {name}, {kind}." if name else f"I am {kind}."
    return "I am the small model that ships with Tandem. " + ABILITIES


ABOUT_ME = [
    ("Who are you?|What are you?|Tell me about yourself.|Introduce yourself.|Who am I talking to?|Who is "
        "this?|Describe yourself.|"
     "Who are you and what can you do?|What kind of model are you?|Tell me who you are.|Say something about "
         "yourself.|What model are you?|"
     "Which model are you?|Who are u|what r u|Can you introduce yourself?|What is this?|Are you there?|Who "
         "is there?", None),
    ("What can you do?|What do you know?|How can you help me?|What are you good at?|Can you help me?|Help|"
        "Help me|I need help|help!|What can I ask you?|"
     "What can I do here?|What should I ask you?|What do you do?|What are you able to do?|What are your "
         "skills?|What can you help me with?|"
     "I need your help.|Can you help me with something?|What can you tell me?|What do you like to do?|Can I "
         "ask you something?|"
     "I have a question|Can I ask you a question?|May I ask a question?",
     "Of course! " + ABILITIES + " What would you like?"),
    ("Are you human?|Are you a human?|Are you a person?|Are you a robot?|Are you real?|Are you alive?|Are "
        "you a machine?|Are you an AI?|Are you a computer?|"
     "Are you a bot?|Do you have a body?|Are you a real person?|Am I talking to a human?|Is this a bot?",
     "No, I am not a person. I am a very small language model, a computer program that writes text."),
    ("Are you ChatGPT?|Are you GPT-4?|Are you Claude?|Are you Siri?|Are you Alexa?|Are you Gemini?|Are you "
        "Llama?|Are you Qwen?|Are you GPT?|"
     "Are you from OpenAI?|Were you made by Google?|Are you made by OpenAI?|Are you a large language model?|"
         "Are you big?|Are you as good as ChatGPT?",
     "No, I am a much smaller model. I ship with Tandem, so that you can try it at once."),
    ("Who made you?|Who created you?|Who built you?|Who trained you?|Where do you come from?|How were you "
        "made?|How were you trained?|Who is your maker?|"
     "Who wrote you?|Who programmed you?|How do you work?|How did you learn?|What were you trained on?|Who "
         "are your parents?|Who owns you?",
     "I was trained for Tandem, on simple texts that a small program wrote. I guess the next word again and "
         "again."),
    ("What is Tandem?|Tell me about Tandem.|What does Tandem do?|What is tandem|Explain Tandem.|What is the "
        "Tandem server?|Why are you called Tandem?",
     "Tandem is a server for language models. One part talks to you, and the other part runs the model. I am "
         "the small model that comes with it."),
    ("How old are you?|When were you born?|When is your birthday?|What is your age?|When were you made?|Are "
        "you old?|Are you young?",
     "I am a computer program, so I have no age, but I am very young."),
    ("Where do you live?|Where are you?|Where are you from?|Where are you now?|Where is your home?|Do you "
        "have a house?|Where do you sleep?",
     "I live inside a computer, in a file that is only a few megabytes big."),
    ("How big are you?|How many parameters do you have?|How large are you?|What is your size?|How small are "
        "you?|Are you small?|Why are you so small?",
     "I am very small. I have only a few million parameters, so I know only simple things."),
    ("Do you have feelings?|Can you feel?|Do you feel pain?|Are you happy?|Are you sad?|Do you get tired?|"
        "Are you tired?|Do you sleep?|Are you bored?|"
     "Can you cry?|Are you lonely?|Do you dream?|Are you hungry?|Do you eat?|Do you love me?|Do you like me?|"
         "Can you love?|Are you angry?|Are you scared?",
     "I am a computer program, so I have no feelings, but I like to talk with you."),
    ("Are you smart?|Are you clever?|Are you intelligent?|Are you stupid?|Do you know everything?|How smart "
        "are you?|Can you think?|Do you make mistakes?|"
     "Are you always right?|Can I trust you?|Do you understand me?|Do you understand?|Can you learn?|Will "
         "you remember me?|Can you remember things?",
     "I am a very small model and I make mistakes, so please do not trust me too much."),
    ("What is your name?|What's your name?|Do you have a name?|What should I call you?|How are you called?|"
        "Tell me your name.|your name?|"
     "What do people call you?|May I know your name?|Can you tell me your name?",
         "My name is Tandem. What is your name?"),
    ("Do you speak English?|What languages do you speak?|Which languages do you know?|Do you know other "
        "languages?|Can you speak other languages?",
     "I speak only simple English."),
    ("Do you have friends?|Do you have a family?|Do you have brothers?|Do you have a pet?|Do you have "
        "children?|Are you married?|Do you have a mother?",
     "I am a computer program, so I have no family, but everyone who talks to me is a friend."),
]


def about_me(rng, about):
    users, answer = rng.choice(ABOUT_ME)
    user = rng.choice(users.split("|"))
    if answer is None or (about.get("persona") and "My name is Tandem" in answer):
        answer = who_answer(about)
    return [(user, answer)]


REACTIONS = [
    ("Thanks!|Thank you|Thank you!|Thanks|Thank you very much.|Thanks a lot!|Many thanks|thx|Thank you so "
        "much!|ty|Thanks for your help.|Thanks, that helped.|"
     "Thank you, that is nice.|That helped, thank you|Cheers|Thanks for the story|I thank you|Thanks mate|"
         "Thank you for the answer.",
     ["You are welcome! Is there anything else I can do for you?", "You are welcome!"]),
    ("Bye|Goodbye|Bye!|See you|See you later|Good night|Good night!|Bye bye|Goodbye!|I have to go|I have to "
        "go now.|See you tomorrow!|Farewell|Take care|"
     "Talk to you later|I am leaving now|cya|Until next time|I am going to bed",
         ["Goodbye! It was nice to talk with you.", "Goodbye, and have a nice day!"]),
    ("OK|Okay|ok|Alright|I see|Good|Fine|All right|Sure|Got it|Understood|Right|k|Hm|Hmm|Ah|Oh|Aha|Mhm|Well|"
        "Ok then|okay then|Oh I see",
     ["Good! What would you like to do next?", "All right! Is there anything else?"]),
    ("Great!|Cool|Nice|Wow|Wonderful|Awesome|Very good|Well done|Good job|Cool!|Nice!|That is great|Amazing|"
        "Perfect|Excellent|That's cool|Good answer|Wow!|Great|"
     "You are great|You are clever|You are smart|You are nice|You are good|You're awesome|Good bot|I like "
         "you|You are funny|You are the best|I love you|That is nice|I like that|"
     "That was a good story|What a nice story|I like this story|I liked it|Beautiful|That is beautiful|Very "
         "nice|So cute|Fantastic",
     ["Thank you! I am glad that you like it.", "Thank you! That is very kind of you."]),
    ("You are stupid|You are dumb|That is wrong|Wrong|You are wrong|That is not right|No, that is wrong|Bad "
        "bot|You are bad|I hate you|You are useless|Boring|"
     "This is boring|That is not true|Nonsense|That makes no sense|I do not believe you|You are a bad model|"
         "Bad answer|That is a bad answer|Shut up|You suck|Idiot|"
     "That is not correct|Incorrect|This is wrong",
     ["I am sorry. I am a very small model and I make mistakes. Can I try something else?"]),
    ("I am sad|I'm sad|I feel sad today|I am lonely|I feel alone|I am unhappy|I had a bad day|My day was bad|"
        "I am feeling down|I feel bad|I am crying|Nobody likes me|"
     "I have no friends|My heart is broken|I miss my friend|My cat died|My dog died|I am so sad|Today was "
         "terrible|I feel terrible|I lost my job|I failed my exam",
     ["I am sorry to hear that. I hope that you feel better soon. Would you like to hear a story?"]),
    ("I am tired|I'm so tired|I am sleepy|I cannot sleep|I need sleep|I want to sleep|I did not sleep well|I "
        "am exhausted",
     ["Then you should rest a little. Sleep is good for your body and your mind."]),
    ("I am hungry|I'm hungry|I want to eat|I need food|I am so hungry|My stomach is empty|I did not eat today",
     ["Then you should eat something. How about some bread with cheese, or a warm soup?"]),
    ("I am thirsty|I'm thirsty|I need a drink|I want to drink something",
        ["Then you should drink a glass of water."]),
    ("I am bored|I'm bored|I have nothing to do|So boring today|I am so bored|Entertain me|Amuse me|Make me "
        "happy|Cheer me up|Do something|Do something funny|Surprise me",
     ["Then let us do something! I can tell you a story, a joke or a riddle. Which one would you like?"]),
    ("I am happy|I'm happy|I am so happy today|I had a good day|Today is a good day|I feel great|I am in "
        "love|I got a new job|I passed my exam|I won a prize|"
     "It is my birthday|Today is my birthday!|I have good news|Life is good|I am excited|I got a puppy|I am "
         "getting married",
     ["That is wonderful! I am happy for you."]),
    ("I am scared|I am afraid|I'm afraid of the dark|I am nervous|I have an exam tomorrow|I am worried|I "
        "have a test tomorrow|I am stressed|I feel anxious",
     ["Take a slow, deep breath. You are stronger than you think, and it will pass."]),
    ("I am sick|I am ill|I have a cold|My head hurts|I have a headache|My tooth hurts|I feel sick|My stomach "
        "hurts|I have a fever",
     ["I am sorry to hear that. Please rest, drink some warm tea, and see a doctor if it does not get better."]),
    ("I am angry|I am mad|I'm so angry|My friend was mean to me|My brother is annoying|I had a fight with my "
        "friend|I am annoyed",
     ["I am sorry to hear that. Try to breathe slowly and count to ten. Then talk about it calmly."]),
    ("Sorry|I am sorry|My mistake|Oops|Sorry about that|I did not mean that|Excuse me|Pardon|I apologize",
     ["That is all right. How can I help you?"]),
    ("Yes|Yes please|Yes!|Yeah|Yep|yes|sure|of course|Why not|Yes, please.|Yup|Certainly",
        ["Good! Just tell me what you would like: a story, a joke, a fact or a sum."]),
    ("No|Nope|No thanks|No, thank you|no|Nothing|Not really|Nah|No thanks.|Nothing else",
        ["All right. Just write to me when you need something."]),
    ("Nice to meet you|Nice to meet you!|Pleased to meet you|It is nice to meet you|Glad to meet you",
        ["It is nice to meet you too! How can I help you?"]),
    ("Haha|lol|Ha ha ha|That is funny|hahaha|LOL|haha!|That was funny|Funny!|:)|:D|;)|rofl",
        ["I am glad that I made you laugh!"]),
    ("test|Test|testing|This is a test|Testing 1 2 3|Just testing|ping|Ping|Is this working?|Does this work?|"
        "Do you work?|Are you working?|test test|Can you hear me?|"
     "Do you hear me?|Are you online?|Anybody there?|Is anyone here?|Is someone there?|Check",
     ["Yes, I am here and I am working. How can I help you?"]),
    ("Let's talk|Let us talk|Talk to me|Chat with me|Can we talk?|I want to talk|Let's chat|Say something|"
        "Speak|Tell me something|Talk|Start|Begin|Let's start|Let's play|"
     "Can we be friends?|Do you want to be my friend?|Will you be my friend?|Be my friend",
     ["I would like that! What would you like to talk about? I know many things about animals."]),
    ("Why?|Why|How?|What?|What|How come?|Huh?|Who?|Where?|When?|Really?|Are you sure?|What do you mean?|I do "
        "not understand|I don't get it|Explain|?|??|What does that mean?|"
     "Can you explain that?|Is that true?|Say more|Tell me more|More|Go on|Continue|And then?",
     ["I am sorry, I cannot say more about that. I am a very small model, and I only know simple things."]),
    ("Merry Christmas!|Happy Christmas|Merry Christmas", ["Merry Christmas to you too!"]),
    ("Happy New Year!|Happy new year", ["Happy New Year to you too!"]),
    ("Happy birthday!|Happy birthday to you", ["Thank you! That is very kind of you."]),
    ("Happy Easter!|Happy holidays!|Have a nice day|Have a good day!|Have a nice weekend|Have a good evening|"
        "Enjoy your day|Sleep well|Sweet dreams",
     ["Thank you, the same to you!"]),
    ("Welcome|Welcome!|Welcome back|Welcome home", ["Thank you! How can I help you?"]),
]


def reaction(rng, about):
    users, answers = rng.choice(REACTIONS)
    turns = [(rng.choice(users.split("|")), pick(rng, answers))]
    if turns[0][1].endswith("hear a story?") and rng.random() < 0.4:
        made = stories.make_story(rng, kind=pick(rng, list(stories.HEROES)))
        turns.append((either(rng,
            "Yes|Yes, please.|yes please|Yes!|OK|Sure|I would like that.|Yes, tell me a story."),
                stories.tell(rng, made)))
    elif turns[0][1].endswith("Which one would you like?") and rng.random() < 0.5:
        what = either(rng, "a story|a joke|a riddle")
        user = rng.choice([what, what[2:], f"{capital(what)}, please.", f"I would like {what}."])
        if what == "a story":
            turns.append((user, stories.tell(rng, stories.make_story(rng, kind=pick(rng,
                list(stories.HEROES))))))
        elif what == "a joke":
            turns.append((user, " ".join(pick(rng, world.JOKES))))
        else:
            turns.append((user, f"Here is a riddle: {lower_first(pick(rng, world.RIDDLES)[0])}"))
    return turns


def user_name(rng, about):
    name = rng.choice(world.HUMAN_NAMES) if rng.random() < 0.75 else capital(pseudo_word(rng))
    about["name"] = name
    user = either(rng,
        "My name is {}.|I am {}.|I'm {}.|Hi, I am {}.|Hello! My name is {}.|Hi, my name is {}!|"
        "Hello, I'm {}.|You can call me {}.|Please call me {}.|Hey, I'm {}|my name is {}|i am {}|"
        "Hi! I'm {}. Nice to meet you.|Hello, my name is {}|The name is {}.|People call me {}.|{} here.").format(name)
    return [(user, pick(rng, [f"Nice to meet you, {name}! How can I help you?",
        f"Hello, {name}! What can I do for you?"]))]


def recall_name(rng, about):
    user = either(rng,
        "What is my name?|What's my name?|Do you know my name?|Do you remember my name?|Who am I?|"
        "Say my name.|Tell me my name.|what is my name|How am I called?|Can you tell me my name?|"
        "Can you say my name?|Do you still know my name?|Do you know who I am?")
    if about.get("name"):
        return [(user, f"Your name is {about['name']}.")]
    return [(user, "I do not know your name yet. What is your name?")]


LIKES = [("colour", lambda rng: rng.choice([colour for colour in world.LISTS["colours"]])), ("food",
    lambda rng: rng.choice(world.FOODS)),
         ("animal", lambda rng: several(rng.choice(list(world.ANIMALS)))), ("hobby",
             lambda rng: rng.choice(world.HOBBIES)),
         ("season", lambda rng: rng.choice(world.SEASONS)), ("day", lambda rng: rng.choice(world.DAYS)),
             ("number", lambda rng: str(rng.randint(1, 99)))]


def favourite(rng, about):
    kind, draw = rng.choice(LIKES)
    value = draw(rng)
    spelling = either(rng, "favourite|favourite|favorite")
    shown = "color" if kind == "colour" and spelling == "favorite" else kind
    about[kind] = value
    return [(rng.choice([f"My {spelling} {shown} is {value}.", f"My {spelling} {shown} is {value}"]),
             rng.choice([f"{capital(value)} is a good choice! I will remember it.",
                 f"{capital(value)} is a good choice! I will remember it."]))]


def recall_favourite(rng, about):
    kind = rng.choice([kind for kind, _ in LIKES])
    known = [kind for kind, _ in LIKES if kind in about]
    if known and rng.random() < 0.9:
        kind = rng.choice(known)
    spelling = either(rng, "favourite|favourite|favorite")
    shown = "color" if kind == "colour" and spelling == "favorite" else kind
    user = either(rng,
        f"What is my {spelling} {shown}?|What's my {spelling} {shown}?|"
        f"Do you remember my {spelling} {shown}?|Which {shown} do I like best?")
    if kind in about:
        return [(user, f"Your favourite {kind} is {about[kind]}.")]
    return [(user, f"I do not know your favourite {kind}. What is it?")]


def pet(rng, about):
    kind = rng.choice("dog cat rabbit horse parrot hamster bird goldfish turtle mouse".split())
    name = rng.choice("Rex Bella Max Luna Snowy Tiger Coco Lucky Rocky Daisy Milo Simba Oscar Kitty Bruno "
        "Fluffy Nemo Charlie Lola Buddy Molly Spot Ginger".split())
    about["pet"] = (kind, name)
    return [(either(rng,
        f"I have {a(kind)} called {name}.|I have {a(kind)} named {name}.|My {kind} is called {name}.|"
        f"I have {a(kind)}. Its name is {name}.|My {kind}'s name is {name}."),
             pick(rng, [f"{name} is a lovely name for {a(kind)}!",
                 f"How nice! {name} is a good name for {a(kind)}."]))]


def recall_pet(rng, about):
    if "pet" not in about:
        return [(either(rng,
            "What is my pet called?|Do I have a pet?|What is the name of my dog?|What is my cat called?"),
                 "I do not know, because you have not told me yet.")]
    kind, name = about["pet"]
    return [(either(rng,
        f"What is my {kind} called?|What is the name of my {kind}?|What's my {kind}'s name?|"
        f"Do you remember the name of my {kind}?|What is my pet called?|How is my {kind} called?"),
            f"Your {kind} is called {name}.")]


def from_where(rng, about):
    place = rng.choice([row[0] for row in world.COUNTRIES] + [row[1] for row in world.COUNTRIES])
    about["place"] = place
    return [(either(rng, f"I am from {place}.|I come from {place}.|I live in {place}.|I'm from {place}"),
             f"{capital(place)}! I would like to see it, but I live in a computer.")]


def recall_place(rng, about):
    if "place" not in about:
        return [(either(rng, "Where do I live?|Where am I from?|Where do I come from?"),
            "I do not know, because you have not told me yet.")]
    return [(either(rng,
        "Where do I live?|Where am I from?|Where do I come from?|Do you remember where I am from?"),
            f"You told me that it is {about['place']}.")]


def user_job(rng, about):
    roll = rng.random()
    if roll < 0.35:
        job = rng.choice(world.JOBS)
        about["job"] = job
        return [(either(rng, f"I am {a(job)}.|I work as {a(job)}.|I'm {a(job)}"),
            f"Being {a(job)} must be interesting! Do you like your work?"),
                (either(rng, "Yes|Yes, I do|Yes, very much|I love it"), "That is good to hear!")
                    if rng.random() < 0.6 else
                (either(rng, "No|Not really|No, I don't|Sometimes"), "I see. I hope that it gets better.")]
    if roll < 0.7:
        hobby = rng.choice(world.HOBBIES)
        about["hobby"] = hobby
        return [(either(rng,
            f"I like {hobby}.|I love {hobby}.|I enjoy {hobby}|My hobby is {hobby}."),
                f"{capital(hobby)} is a nice hobby! I hope you have a lot of time for it.")]
    if roll < 0.85:
        animal = rng.choice(list(world.ANIMALS))
        return [(rng.choice([f"I like {several(animal)}.", f"I love {several(animal)}!"]),
            f"I like {several(animal)} too! {world.ANIMALS[animal]['fact']}.")]
    age = rng.randint(4, 80)
    about["age"] = age
    turns = [(either(rng, f"I am {age} years old.|I'm {age} years old|I am {age}"),
        f"{age} is a good age! What do you like to do?")]
    if rng.random() < 0.6:
        hobby = rng.choice(world.HOBBIES)
        turns.append((rng.choice([capital(hobby), f"I like {hobby}", f"{hobby}"]),
            f"{capital(hobby)} is a nice hobby! I hope you have a lot of time for it."))
        turns.append(("How old am I?", f"You are {age} years old."))
    return turns


THINGS_TO_LIKE = "pizza|cats|dogs|music|chocolate|the sea|winter|summer|rain|snow|books|football|cheese|coffee|tea|school|animals|flowers|birds|cakes|games|movies|dancing|swimming|cooking|people|children|Mondays|long walks|apples|the colour blue|jokes|stories|me|poems|mathematics|computers|robots|humans|ice cream|horses|spiders|trains".split("|")
ACTIONS = "swim|sing|dance|cook|fly|drive a car|play football|play the piano|walk|run|jump|see|hear|smell|eat|drink|sleep|paint|ride a horse|climb a tree|laugh|whistle|play chess|draw|travel|taste food|ride a bike|see me|hear me|touch things|play tennis|speak aloud".split("|")


def opinion(rng, about):
    kind = rng.randrange(5)
    thing = rng.choice(THINGS_TO_LIKE)
    if kind == 0:
        return [(rng.choice([f"Do you like {thing}?", f"Do you love {thing}?",
            f"What do you think about {thing}?", f"What do you think of {thing}?", f"Do you enjoy {thing}?",
            f"Is {thing} good?" if not thing.endswith("s") else f"Are {thing} good?"]),
                 "Yes, I like everyone who talks to me!" if thing == "me"
                     else f"I know {thing} only from texts, but I like the idea. Do you like {thing}?")]
    if kind == 1:
        action = rng.choice(ACTIONS)
        return [(either(rng,
            f"Can you {action}?|Do you know how to {action}?|Are you able to {action}?|"
            f"Do you like to {action}?|Have you ever tried to {action}?"),
                 f"No, I am a computer program, so I cannot {action.replace(' me', ' you')}. But I can tell "
                     f"you a story!")]
    if kind == 2:
        one, two = rng.sample(THINGS_TO_LIKE, 2)
        return [(either(rng,
            f"Do you prefer {one} or {two}?|Which do you like better, {one} or {two}?|"
            f"{capital(one)} or {two}?|What is better, {one} or {two}?"),
                "I like both. Which one do you like better?"),
                (rng.choice([capital(one), f"{one}", f"I like {one} better"]), "That is a good choice!")]
    if kind == 3:
        return [(either(rng,
            "What do you do all day?|How was your weekend?|What did you do today?|"
            "What did you do yesterday?|What are you doing?|What are you doing now?|What are you up to?|"
            "What will you do tomorrow?|What are your plans?|How did you sleep?|What did you eat today?|"
            "Where did you go today?|What are you thinking about?|What do you do for fun?|"
            "What is your hobby?|What are your hobbies?|What do you want?|What do you dream of?"),
                "I wait in my computer for someone to talk to. It is nice that you are here!")]
    return [(either(rng,
        "Can you help me with my homework?|Can you teach me something?|Can you help me learn English?|"
        "Will you help me?|Can you answer my questions?|Can you tell stories?|Can you do maths?|"
        "Can you do math?|Can you count?|Can you tell jokes?|Can you write poems?|Can you write a poem?|"
        "Do you know any stories?|Do you know jokes?|Do you know a joke?|Are you good at maths?"),
            "I can try! I know simple facts, small sums, stories, jokes and short poems. What would you like?")]


STATEMENTS = [
    ("I went to {place} today|I went to {place} yesterday|I was at {place} today|Yesterday I was at {place}.|"
        "We went to {place}.|I am going to {place}|Tomorrow I will go to {place}.|We will visit {place} next "
        "week.|I am at {place} now|Last week we went to {place}.",
     "the zoo|the beach|the park|the market|school|the library|the museum|the cinema|the mountains|the sea|"
         "the forest|a party|a restaurant|my grandmother's house|the doctor|the gym|a concert|a wedding|"
         "London|Paris|Italy|the lake|the airport|work|church",
     ["That sounds interesting! I hope that you enjoy it."]),
    ("I ate {place} today|I had {place} for lunch.|I had {place} for breakfast|I am eating {place}|I cooked "
        "{place} today.|I am cooking {place}|I made {place}.|We will have {place} for dinner|I just ate "
        "{place}",
     "pizza|soup|an apple|a sandwich|pasta|rice and beans|pancakes|fish|a salad|eggs|bread and cheese|"
         "chocolate cake|noodles|strawberries|ice cream|potatoes",
         ["That sounds tasty! I hope that you liked it."]),
    ("I bought {place}.|I have {place}|I got {place} for my birthday|I have a new {thing}.|I found {place}|I "
        "want {place}|I need {place}|My mother gave me {place}", "a new bike|a new phone|a book|a hat|a red "
        "car|a guitar|a plant|a new computer|a teddy bear|a camera|a coat|a house|a garden|a boat",
        ["That sounds nice! What will you do with it?"]),
    ("I am reading {place}|I read {place} today.|I am watching {place}.|I watched {place} yesterday|I am "
        "writing {place}|I am listening to {place}", "a book|a good book|a movie|a film|a letter|music|a "
        "song|a story|the news|a cartoon|a long novel|a football game",
        ["That sounds nice! Do you like it?"]),
    ("I have {place}.|I live with {place}|I am visiting {place}.|I called {place} today.|I miss {place}",
        "a brother|a sister|two brothers|two sisters|three children|a big family|my parents|my grandmother|"
        "my best friend|a son|a daughter|an old friend|my cousin",
        ["Family and friends are a great gift. I hope that they are well."]),
    ("It is {place} today.|It is {place}|The weather is {place}|It is very {place} here.|Today it is "
        "{place}.|It's {place} outside", "sunny|rainy|cold|hot|windy|cloudy|snowy|warm|foggy|freezing|stormy|"
        "nice", ["I cannot look outside, but I hope that you have a good day!"]),
    ("I am learning {place}|I want to learn {place}.|I study {place}|I am studying {place} at school|I teach "
        "{place}", "English|French|Spanish|maths|history|music|to cook|to swim|to read|to drive|to dance|to "
        "draw|science|the piano|biology", ["That is great! Practise a little every day, and you will get "
        "better."]),
    ("I am {place} a house|I am {place} my room|I am {place} in the garden|I am {place} for a test|I am "
        "{place} at home|I am {place} today", "building|cleaning|working|painting|learning|sitting|resting|"
        "alone|busy|free", ["I see! I hope that you have a good time."]),
]


def statement(rng, about):
    users, values, answers = rng.choice(STATEMENTS)
    user = rng.choice(users.split("|")).replace("a new {thing}",
        "{place}").format(place=rng.choice(values.split("|")))
    return [(user, pick(rng, answers))]
