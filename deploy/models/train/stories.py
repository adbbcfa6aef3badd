"""Short stories: one plot, one hero, one object, carried through from the first sentence to the moral.

A Story keeps what its sentences must agree on (names, kinds, place, object); a plot is a list of sentence slots,
each with a few wordings. Follow-up questions are answered from the same fields.
"""

import dataclasses

from choose import capital, pick
from world import a

# kind of hero | where it lives
HEROES = dict(
    fox="in a quiet forest", rabbit="at the edge of a green meadow", bear="in a deep forest",
        mouse="in an old barn",
    cat="in a small house by the sea", dog="on a sunny farm", owl="in a tall oak tree",
        frog="by a still pond",
    duck="on a small lake", hedgehog="in a wild garden", squirrel="in a big chestnut tree",
        wolf="in the snowy mountains",
    lion="on the wide plains", elephant="near a slow river", monkey="in a green jungle",
        turtle="on a warm beach",
    penguin="on a cold white island", bee="in a garden full of flowers", snail="under an old stone wall",
    dragon="in a cave high in the mountains", horse="on a green hill", sheep="on a grassy hill",
        pig="on a little farm",
    cow="on a quiet farm", goat="high in the mountains", bird="in a garden with cherry trees",
        robin="in a garden with cherry trees",
    crow="on top of an old tower", whale="in the deep blue sea", dolphin="in a warm blue bay",
        fish="in a clear stream",
    crab="on a sandy beach", tiger="in a thick jungle", giraffe="on the dry plains",
        zebra="on the wide plains",
    panda="in a bamboo forest", koala="in a tall gum tree", kangaroo="in the dry bush",
        camel="in a hot desert",
    otter="by a fast river", beaver="by a clear river", deer="in a quiet forest", mole="under a large garden",
        bat="in a dark cave",
    butterfly="in a meadow full of flowers", ant="under an old pine tree",
        spider="in the corner of an old shed",
    parrot="in a warm green forest", swan="on a silver lake", goose="by a wide lake",
        donkey="on a dusty farm",
    chicken="on a busy farm", seal="on a rocky shore", octopus="in a cave under the sea",
        snake="in the tall grass",
    boy="in a small village", girl="in a small village", king="in a great castle", queen="in a great castle",
    robot="in a busy workshop", princess="in a white castle", wizard="in a crooked tower",
        farmer="on a small farm",
    knight="in an old castle", baker="in a little town", sailor="in a house by the harbour",
        fisherman="in a hut by the sea",
    fairy="inside a blue flower", giant="behind the highest hills", ghost="in an empty old house",
        child="in a small village",
    teacher="in a quiet town", pirate="on a small island", unicorn="in a silver forest",
        puppy="in a house with a red door",
    kitten="in a house with a green door", lamb="on a grassy hill", star="high up in the night sky",
        cloud="high above the hills",
    tree="at the edge of a field", train="at a small station", boat="in a quiet harbour",
        snowman="in a snowy garden",
    dinosaur="in a warm green valley", crocodile="in a slow brown river", hippo="in a wide river",
        lizard="on a warm rock")
PEOPLE_HE = {"prince", "cowboy", "mailman", "old man", "boy", "king", "wizard", "farmer", "knight", "baker",
    "sailor", "fisherman", "pirate", "giant", "snowman"}
PEOPLE_SHE = {"witch", "mermaid", "grandmother", "girl", "queen", "princess", "fairy", "teacher"}

NAMES_HE = "Rusty Finn Bruno Max Leo Otto Toby Milo Sam Hugo Benny Oscar Felix Theo Pip Jasper Tom Ben".split()
NAMES_SHE = "Lily Rosie Bella Mia Daisy Luna Ruby Nora Poppy Tilly Clara Molly Ella Ivy Hazel Penny Anna Mimi".split()
GIRLS = set(NAMES_SHE) | set("""Emma Lily Sara Rosa Nina Julia Ida Zoe Eva Alice Mary Kate Lucy Maria Laura Sophie Grace Olivia Ruth
Hannah Amy Lena Priya Fatima Ingrid Aisha Maya Ava Sophia Isabel Helen Diana Marta Olga Tara Sarah""".split())
TRAITS = "little kind brave curious clever young lonely cheerful shy gentle".split()
MORE_TRAITS = """hungry sleepy tiny old funny lost proud lazy happy sad angry friendly small big hard-working patient
strong quiet red blue purple green magical grumpy silly fast slow wise honest scared busy tired""".split()
FRIENDS = "rabbit mouse owl bird squirrel frog hedgehog cat dog duck bear turtle butterfly crow fox".split()
OBJECTS = """red ball|golden key|blue kite|silver bell|shiny stone|little lamp|old map|warm scarf|wooden boat|glass marble|
green hat|bright lantern|small drum|paper boat|sweet red apple|jar of honey|yellow balloon|silver coin""".replace("\n", "").split("|")
WISHES = [("see the sea", "the sea", "at the end of a long road"), ("touch the moon", "the moon",
    "above the highest hill"),
          ("find a friend", "a friend", "somewhere in the wide world"), ("learn to sing", "a song",
              "in the heart of the forest"),
          ("see the snow", "the snow", "on top of the mountain"), ("find the end of the rainbow",
              "the end of the rainbow", "behind the hills"),
          ("see the city", "the city", "on the other side of the river")]
# what a story is asked to be about | which plots tell it
THEMES = {"friendship": [0, 10], "two friends": [0, 5, 10], "courage": [1], "being brave": [1],
    "the dark": [1], "sharing": [2], "a hungry friend": [2], "a journey": [3],
          "a dream": [3], "an adventure": [3, 5], "a long trip": [3], "honesty": [4, 8], "a lie": [4],
              "the truth": [4], "helping others": [5, 2], "a storm": [5], "kindness": [2, 5],
          "patience": [6, 9], "a race": [6], "a birthday": [7], "a present": [7], "love": [7, 0],
              "Christmas": [7], "a lost toy": [0], "a garden": [9], "a flower": [9], "a new friend": [10],
          "animals": [0, 2, 5], "nature": [9, 3], "school": [10], "the sea": [3], "the moon": [3],
              "magic": [9, 3], "a family": [2, 7], "happiness": [7, 2], "hope": [9, 3]}
# "a fox who ..." | plot
CLAUSES = [("is afraid of the dark", 1), ("is afraid of the night", 1), ("was scared of the dark", 1),
    ("lost {his} {thing}", 0), ("has lost {his} {thing}", 0), ("learns to share", 2),
    ("finds a basket of food", 2),
           ("wants to {wish}", 3), ("wanted to {wish}", 3), ("goes on a journey", 3), ("tells a lie", 4),
               ("helps a friend", 5), ("gets into a storm", 5), ("wins a race", 6), ("runs a race", 6),
               ("makes a present for a friend", 7),
           ("finds {a_thing}", 8), ("found {a_thing}", 8), ("plants a seed", 9), ("has a garden", 9),
               ("meets a new friend", 10), ("makes a new friend", 10), ("finds a friend", 10), ("is lonely",
               10)]
MORE_HEROES = """toaster spaceship vampire detective ninja prince witch doctor monster alien mermaid elf troll hamster pony eagle shark computer car bicycle lamp spoon
cook pilot grandmother old~man mailman painter clown writer dancer cowboy soldier gardener student ogre mosquito pigeon sparrow peacock walrus sloth raccoon wombat lobster rose mushroom potato""".split()
DANGERS = ["a cold storm came up", "a thick fog came down", "a heavy rain began to fall",
    "the wind blew harder and harder",
           "the night came, dark and cold"]


@dataclasses.dataclass
class Story:
    kind: str
    name: str
    he: str
    his: str
    him: str
    trait: str
    home: str
    friend: str
    friend_name: str
    friend_he: str
    friend_his: str
    thing: str
    wish: tuple
    danger: str
    time: str
    moral: str = ""
    event: str = ""


def make_story(rng, kind=None, name=None, thing=None, friend=None):
    kind = kind or rng.choice(list(HEROES))
    he = kind in PEOPLE_HE or (kind not in PEOPLE_SHE and pick(rng, [True, False], kind))
    if name and kind not in PEOPLE_HE | PEOPLE_SHE:
        he = name not in GIRLS
    name = name or pick(rng, NAMES_HE if he else NAMES_SHE, kind)
    friend = friend or pick(rng, [other for other in FRIENDS if other != kind], kind + "friend")
    friend_he = pick(rng, [True, False], kind + friend)
    names = [other for other in (NAMES_HE if friend_he else NAMES_SHE) if other != name]
    return Story(kind=kind, name=name, he="he" if he else "she", his="his" if he else "her", him="him" if he
        else "her",
                 trait=pick(rng, TRAITS, kind + "trait"), home=HEROES.get(kind, "in a quiet place far away"),
                     friend=friend,
                 friend_name=pick(rng, names, kind + friend + "name"), friend_he="he" if friend_he else "she",
                 friend_his="his" if friend_he else "her",
                 thing=thing or pick(rng, OBJECTS, kind + "thing"), wish=pick(rng, WISHES, kind + "wish"),
                 danger=pick(rng, DANGERS, kind + "danger"),
                 time=pick(rng, ["One day", "One morning", "One sunny day", "One evening", "One winter day"],
                     kind + "time"))


OPENINGS = ["Once upon a time, there was {a_trait_kind} named {name}. {He} lived {home}.",
            "Once there was {a_trait_kind} called {name} who lived {home}.",
            "{Home}, there lived {a_trait_kind} named {name}."]

# event (what the story is about) | moral | slots of wordings
PLOTS = [
    ("{name} lost {his} {thing} and found it again with the help of {friend_name}",
        "Good friends help each other",
     [["{name} had {a_thing} that {he} loved more than anything.",
         "The thing {name} loved most was {his} {thing}."],
      ["{time}, the {thing} was gone.", "{time}, {name} could not find the {thing}."],
      ["{name} looked under the bed and behind the door, but it was not there.",
          "{name} looked everywhere, but {he} could not find it."],
      ["{He} sat down and began to cry.", "{He} felt very sad."],
      ["Then {a_friend} named {friend_name} came by. \"Why are you sad?\" asked {friend_name}.",
       "{Friend_name} the {friend} heard {him} and came to ask what was wrong."],
      ["\"I have lost my {thing},\" said {name}."],
      ["\"Do not worry,\" said {friend_name}. \"We will look for it together.\""],
      ["They looked and looked, and at last they found the {thing} under a pile of leaves.",
       "They walked back along the path, and there, in the tall grass, lay the {thing}."],
      ["{name} was so happy that {he} jumped for joy.", "{name} laughed and hugged {friend_name}."],
      ["From that day on, {name} and {friend_name} were the best of friends.",
          "From then on, they shared everything they had."]]),
    ("{name} was afraid of the dark until {friend_name} showed {him} the stars",
        "You can be brave even when you are afraid",
     [["{name} had one secret: {he} was afraid of the dark.", "{name} was afraid of the dark."],
      ["Every night {he} hid under {his} blanket and waited for the morning."],
      ["{time}, {a_friend} named {friend_name} came to visit."],
      ["\"Come outside with me,\" said {friend_name}. \"I want to show you something.\""],
      ["{name} was scared, but {he} took one small step, and then another.",
          "{name}'s heart beat fast, but {he} went along."],
      ["Outside, the sky was full of stars.", "Above them, a thousand stars were shining."],
      ["\"Without the dark, we could not see them,\" said {friend_name}."],
      ["{name} looked up and smiled. The dark did not seem so bad now.",
          "{name} looked and looked, and slowly the fear went away."],
      ["From that night on, {name} was not afraid any more.",
          "After that, {name} looked forward to every night."]]),
    ("{name} shared {his} food with {friend_name}, who was hungry", "When you share, you have more",
     [["{time}, {name} found a basket full of sweet berries.",
         "{time}, {name} found a big basket of apples."],
      ["\"All this is for me!\" {he} said.", "\"I will eat them all myself,\" {he} thought."],
      ["On the way home {he} met {a_friend} named {friend_name}."],
      ["{Friend_name} looked thin and tired. \"I have not eaten today,\" {friend_he} said."],
      ["{name} looked at the basket, and then at {friend_name}."],
      ["\"Take some,\" said {name}. \"There is enough for two.\"", "\"Come and eat with me,\" said {name}."],
      ["They sat down in the sun and ate together, and the food had never tasted so good."],
      ["When winter came and {name} had nothing left to eat, {friend_name} came with a bag of nuts.",
       "Some weeks later {name} was hungry, and {friend_name} came with a loaf of warm bread."],
      ["\"There is enough for two,\" said {friend_name}, and they both laughed."]]),
    ("{name} wanted to {wish} and went on a long journey", "A dream comes true one step at a time",
     [["More than anything, {name} wanted to {wish}.", "{name} had a big dream: {he} wanted to {wish}."],
      ["\"That is much too far,\" said the others. But {name} did not listen."],
      ["{time}, {he} packed {a_thing} and set off.", "{time}, {he} took {his} {thing} and started to walk."],
      ["After some hours, {danger}.", "On the way, {danger}."],
      ["{name} wanted to turn back, but then {he} met {a_friend} named {friend_name}."],
      ["\"Come with me,\" said {friend_name}. \"I know the way.\""],
      ["They walked on side by side, and they told each other stories.",
          "They walked for three days and sang songs on the way."],
      ["At last they came to the place, {wish_where}. There it was: {wish_what}!"],
      ["{name} stood still and smiled. \"It is even more beautiful than in my dreams,\" {he} said.",
       "{name} was so happy that {he} danced."],
      ["And the best thing was that {he} had a friend to share it with."]]),
    ("{name} told a lie about {a_thing} and then told the truth", "It is always better to tell the truth",
     [["{time}, {name} was playing and broke {a_thing} that belonged to {friend_name} the {friend}.",
       "{time}, {name} broke the {thing} of {his} friend, {friend_name} the {friend}."],
      ["\"Who did this?\" asked {friend_name} sadly."],
      ["\"It was the wind,\" said {name}. But it was not true."],
      ["That night {name} could not sleep.", "All day long {name} felt a heavy stone in {his} heart."],
      ["In the morning {he} went to {friend_name} and said, \"It was not the wind. It was me. I am sorry.\""],
      ["{Friend_name} was quiet for a moment. Then {friend_he} smiled."],
      ["\"Thank you for telling me,\" {friend_he} said. \"Let us mend it together.\""],
      ["They worked all afternoon, and soon the {thing} was as good as new."],
      ["{name} felt as light as a feather.", "That night {name} slept very well."]]),
    ("{name} helped {friend_name} in a storm", "Help others, and they will help you",
     [["{time}, {danger}.", "{time}, the sky turned grey and {danger}."],
      ["{name} was safe at home when {he} heard a small voice calling for help."],
      ["It was {a_friend} named {friend_name}, who could not find the way home."],
      ["{name} took {his} {thing} and ran outside.",
          "Without a thought, {name} took {his} {thing} and went out."],
      ["\"Hold on to me,\" said {name}, \"and do not be afraid.\""],
      ["Step by step they went back, and soon they were sitting by the warm fire."],
      ["\"You saved me,\" said {friend_name}. \"How can I thank you?\""],
      ["\"Stay and have some soup,\" said {name}, and so they did."],
      ["The next day the sun was shining, and {friend_name} helped {name} to repair the roof."],
      ["They have been good friends ever since."]]),
    ("{name} ran a race against {friend_name} and learned to be patient", "Slow and steady wins the race",
     [["{friend_name} the {friend} was very proud. \"Nobody is faster than me,\" {friend_he} said every day."],
      ["{time}, {name} said, \"Let us run a race to the old bridge.\""],
      ["Everybody laughed, but {name} did not mind."],
      ["The race began, and {friend_name} ran ahead like the wind."],
      ["Halfway, {friend_he} stopped to take a nap in the sun. \"I have plenty of time,\" {friend_he} "
          "thought."],
      ["{name} went on, step by step, and never stopped."],
      ["When {friend_name} woke up, {name} was already at the bridge."],
      ["\"How did you do it?\" asked {friend_name}."],
      ["\"I just kept going,\" said {name}, and they walked home together."]]),
    ("{name} made a present for {friend_name}", "A gift from the heart is the best gift",
     [["It was the birthday of {friend_name} the {friend}, and {name} had no present."],
      ["{He} had no money to buy anything.", "{name} looked in all {his} boxes, but there was nothing nice "
          "enough."],
      ["So {he} sat down and thought for a long time."],
      ["Then {he} had an idea. {He} took {his} own {thing}, cleaned it, and tied a ribbon around it."],
      ["At the party there were many big presents, and {name} felt small."],
      ["But when {friend_name} opened the little box, {friend_his} eyes began to shine."],
      ["\"It is your {thing}!\" said {friend_name}. \"You gave me the thing you love most.\""],
      ["They played with it together until the sun went down.",
          "They hugged each other, and the party was a happy one."]]),
    ("{name} found {a_thing} and gave it back to its owner", "Honest hearts find true friends",
     [["{time}, {name} found {a_thing} on the path.", "{time}, {name} went for a walk and found {a_thing}."],
      ["It was so beautiful that {he} wanted to keep it."],
      ["But then {he} thought, \"Somebody must be looking for it.\""],
      ["So {name} went from door to door and asked, \"Is this yours?\""],
      ["At the last door {a_friend} named {friend_name} opened. \"My {thing}!\" {friend_he} cried. \"I "
          "thought it was lost for ever.\""],
      ["\"You could have kept it,\" said {friend_name}. \"Why did you bring it back?\""],
      ["\"Because it is yours,\" said {name}."],
      ["{friend_name} was so happy that {friend_he} invited {name} to dinner.",
          "{friend_name} made hot soup, and they talked until late."],
      ["From that day on, {name} was never alone."]]),
    ("{name} planted a seed and waited for it to grow", "Good things need time",
     [["{time}, {friend_name} the {friend} gave {name} a tiny seed.",
         "{time}, {name} got a tiny seed from {his} friend, {friend_name} the {friend}."],
      ["{name} put it in the ground and waited. Nothing happened."],
      ["The next day {he} looked again, and still there was nothing.",
          "{He} waited a whole week, and still there was nothing."],
      ["\"This seed is no good,\" said {name}."],
      ["\"Give it water, sun and time,\" said {friend_name}."],
      ["So {name} watered the seed every day and sang to it."],
      ["One morning there was a small green leaf, and some weeks later a bright yellow flower."],
      ["\"Look!\" cried {name}. \"It is the most beautiful flower in the world!\""],
      ["{friend_name} smiled. \"And you made it grow,\" {friend_he} said."]]),
    ("{name} met {friend_name}, a new friend who was different", "Everyone is good at something",
     [["{time}, {a_friend} named {friend_name} moved in next door."],
      ["{friend_name} was very different. {Friend_he} talked in another way and liked other games."],
      ["At first {name} did not know what to say."],
      ["Then {name}'s {thing} got stuck high up in a tree.", "Then {name}'s {thing} fell into a deep hole."],
      ["\"I can help you,\" said {friend_name}, and in a moment {friend_he} had brought it back."],
      ["\"How did you do that?\" asked {name}. \"It is easy for me,\" said {friend_name}. \"What are you "
          "good at?\""],
      ["\"I can tell stories,\" said {name}."],
      ["So {name} told a story, and {friend_name} listened with big eyes."],
      ["After that day they played together every afternoon."]]),
]


def slots(story):
    values = dataclasses.asdict(story)
    values.update(
        a_trait_kind=a(f"{story.trait} {story.kind}"), a_thing=a(story.thing), a_friend=a(story.friend),
        wish=story.wish[0], wish_what=story.wish[1], wish_where=story.wish[2], Home=capital(story.home),
            He=capital(story.he),
        His=capital(story.his), Friend_name=story.friend_name, Friend_he=capital(story.friend_he))
    return values


def tell(rng, story, with_moral=None, plot=None):
    event, moral, sentences = plot or pick(rng, PLOTS, story.kind + "plot")
    values = slots(story)
    text = [pick(rng, OPENINGS, story.kind + "open").format(**values)]
    text += [pick(rng, wordings).format(**values) for wordings in sentences]
    story.moral, story.event = moral, event.format(**values)
    if with_moral if with_moral is not None else rng.random() < 0.3:
        text.append(f"The moral of the story is: {moral[0].lower()}{moral[1:]}.")
    # Paragraphs: opening and trouble, then the rest.
    cut = rng.choice([len(text), 4]) if len(text) > 8 else len(text)
    return " ".join(text[:cut]) + ("\n\n" + " ".join(text[cut:]) if cut < len(text) else "")


def tell_long(rng, story):
    """Two or three plots with the same hero and friend, one after the other."""
    order = rng.sample(PLOTS, rng.choice([2, 2, 3]))
    values = slots(story)
    text = pick(rng, OPENINGS, story.kind + "open").format(**values)
    parts = []
    for index, (event, moral, sentences) in enumerate(order):
        story.time = ["One day", "Some weeks later", "The next year"][index]
        values = slots(story)
        body = " ".join(pick(rng, wordings).format(**values) for wordings in sentences)
        body = body.replace(f"{values['a_friend']} named {story.friend_name}",
            f"{story.friend_name} the {story.friend}")
        parts.append(body)
        story.moral, story.event = moral, event.format(**values)
    return text + "\n\n" + "\n\n".join(parts) + "\n\nAnd they lived happily ever after."


def tell_tiny(rng, story):
    """Two or three sentences."""
    values = slots(story)
    story.moral, story.event = "Good friends help each other", f"{story.name} found a friend"
    return pick(rng, [
        "{a_Trait_kind} named {name} lived {home}. One day {he} met {a_friend} named {friend_name}, and they "
            "shared {a_thing}. They were friends from that day on.",
        "Once there was {a_trait_kind} named {name} who had lost {his} {thing}. {Friend_name} the {friend} "
            "helped {him} to find it, and they became good friends.",
    ]).format(a_Trait_kind=capital(values["a_trait_kind"]), **values)
