"""Short poems and haikus, written by hand."""

import stories
import world
from choose import either, pick
from phrasing import pseudo_word, request
from world import a, several

POEMS = dict(
    cat="A little cat sat in the sun,\nits sleepy day had just begun.\nIt purred and dreamed the whole day "
        "through,\nbeneath a sky of brightest blue.",
    dog="My little dog runs fast and free,\nand when I call he comes to me.\nHe wags his tail, he jumps up "
        "high,\na better friend no coin can buy.",
    sun="The golden sun climbs up the sky,\nand wakes the birds that sing and fly.\nIt warms the hill, it "
        "warms the sea,\nit shines on you, it shines on me.",
    moon="The moon looks down, so round and bright,\nand paints the garden silver white.\nThe world is "
        "still, the stars are near,\nsleep well, my friend, the night is here.",
    sea="The sea is wide, the sea is deep,\nit rocks the little boats to sleep.\nThe waves come in, the "
        "waves go out,\nand white gulls fly and cry about.",
    rain="The rain is falling on my street,\nit sings a song so soft and sweet.\nThe flowers drink, the "
        "puddles grow,\nand children jump in, to and fro.",
    snow="The snow falls softly through the night,\nand makes the sleeping village white.\nBy morning every "
        "roof and tree\nis dressed for all the world to see.",
    spring="The spring has come, the snow is gone,\nthe birds are singing on the lawn.\nThe flowers wake, "
        "the trees turn green,\nthe brightest days that we have seen.",
    summer="The summer sun is warm and bright,\nthe days are long, and short the night.\nWe swim and play "
        "beside the sea,\nas happy as a child can be.",
    autumn="The leaves fall down in red and gold,\nthe days grow short, the nights grow cold.\nWe gather "
        "apples, ripe and sweet,\nand dry leaves whisper at our feet.",
    winter="The winter wind blows cold and clear,\nthe shortest days of all the year.\nBut by the fire, warm "
        "and bright,\nwe tell old stories in the night.",
    love="Love is a light that does not end,\na helping hand, a faithful friend.\nIt does not shout, it does "
        "not stay\nbut where it gives itself away.",
    friendship="A friend is like a lamp at night,\nthat makes the darkest corner bright.\nWe laugh, we cry, "
        "we share our bread,\nand kindly words are gently said.",
    tree="The old tree stands beside the lane,\nin summer sun and winter rain.\nIt gives us shade, it gives "
        "us air,\nand birds build little houses there.",
    bird="A little bird sang in the tree,\nand all its songs were sung for me.\nIt spread its wings and off "
        "it flew,\ninto a sky of morning blue.",
    star="A tiny star, so far away,\nis waiting for the end of day.\nAnd when the sky is dark and deep,\nit "
        "watches over all who sleep.",
    flower="A flower opened with the day,\nand chased the sleepy night away.\nIt held a drop of morning "
        "dew,\nand kept its sweetest smile for you.",
    fox="A fox went walking through the wood,\nas quiet as a shadow could.\nHis tail was red, his eyes were "
        "bright,\nand off he went into the night.",
    river="The river runs, it does not wait,\nit passes every garden gate.\nIt sings to stone, it sings to "
        "tree,\nand finds at last the wide blue sea.",
    night="The night comes down on silent feet,\nand draws its blanket up the street.\nThe lamps go out, the "
        "children sleep,\nand stars their quiet watches keep.",
    mother="My mother's hands are soft and warm,\nthey hold me safe in every storm.\nWherever I may go or "
        "stay,\nher love is with me all the way.",
    home="There is a place where I can be,\nas warm and quiet as can be.\nThe kettle sings, the lamp is "
        "lit,\nand by the fire friends can sit.")
HAIKUS = dict(
    spring="Soft rain on the hill,\na small green leaf lifts its head,\nand the birds come home.",
    summer="Warm wind in the grass,\nthe long day lies down to rest,\na cricket still sings.",
    autumn="One red leaf falls down,\nthe pond holds it for a while,\nthen the wind comes back.",
    winter="White snow on the roof,\nthe old cat sleeps by the fire,\nno sound but the clock.",
    cat="Small paws on the stairs,\na shadow with shining eyes,\nthe moon knows her name.",
    dog="He waits at the door,\nhis tail beats like a small drum,\nat last you are home.",
    rain="Drops on the window,\neach one carries a small sky\ndown into the dark.",
    moon="The moon in the pond,\na frog jumps, and it is gone,\nand then it comes back.",
    sea="Wave after small wave,\nthe sea writes upon the sand\nand wipes it away.",
    tree="The old tree stands still,\na hundred years in its rings,\na nest in its arms.",
    flower="A bud in the dark,\nit does not know of the sun,\nand still it opens.",
    snow="It came in the night,\nnow the whole garden is new,\none bird writes its name.",
    night="The last lamp goes out,\nthe town folds its hands and sleeps,\nstars take up their watch.",
    river="The river goes by,\nit says the same word all day,\nI almost hear it.")


def poem(rng, about):
    table = HAIKUS if rng.random() < 0.35 else POEMS
    word = "haiku" if table is HAIKUS else either(rng, "poem|poem|short poem|rhyme|little poem|song")
    theme = rng.choice(list(table))
    subject = {"sun": "the sun", "moon": "the moon", "sea": "the sea", "night": "the night", "home": "home",
        "mother": "my mother"}.get(theme)
    if subject is None:
        subject = theme if theme in "rain snow spring summer autumn winter love friendship".split() else rng.choice([a(theme), several(theme)])
    verb = either(rng, "write|write me|write|make|tell me|give me")
    if rng.random() < 0.35:
        theme = pick(rng, list(table))
        return [(request(rng, f"{verb} a {word}"), table[theme])]
    return [(request(rng, f"{verb} a {word} about {subject}"), table[theme])]


ANY_POEM = ["Oh {x}, oh {x}, I sing of you,\nin morning light and evening dew.\nThe world would be a poorer "
    "place\nwithout your gentle, friendly grace."]
ANY_HAIKU = "One small thing today,\nI look at it for a while,\nand the world is still."


def any_poem(rng, about):
    """About things that have no poem of their own."""
    known = set(POEMS) | set(HAIKUS)
    noun = rng.choice([word for word in [row[0]
        for row in world.DEFINITIONS] + list(world.ANIMALS) + stories.MORE_HEROES
        if word not in known and "~" not in word])
    if rng.random() < 0.2:
        noun = pseudo_word(rng)
    haiku = rng.random() < 0.3
    shown = rng.choice([a(noun), several(noun), noun, "the " + noun, "my " + noun])
    user = request(rng, f"{rng.choice(['write', 'write me', 'make', 'tell me'])} a "
        f"{'haiku' if haiku else rng.choice(['poem', 'short poem', 'rhyme', 'little poem', 'song'])} about "
        f"{shown}")
    return [(user, ANY_HAIKU if haiku else ANY_POEM[0].format(x=noun))]
