"""How people phrase questions and requests, and made-up words."""

from choose import capital


def lower_first(text):
    return text if text.startswith(("I ", "I'")) else text[:1].lower() + text[1:]


def ask(rng, question):
    """A question or a request in one of the ways people phrase it."""
    bare = question.rstrip("?.!")
    mark = question[len(bare):] or rng.choice(["", "."])
    roll = rng.random()
    if roll < 0.55:
        return question
    if roll < 0.61:
        return f"{rng.choice(['Please tell me', 'Tell me', 'Question', 'A question', 'Quick question', 'Now tell me'])}: {lower_first(bare)}{mark}"
    if roll < 0.68:
        return f"{rng.choice(['Hi!', 'Hello!', 'Hey,', 'Hi there!', 'Hello,', 'Hey!'])} {bare}{mark}"
    if roll < 0.72:
        return f"{bare}, please{mark}"
    if roll < 0.75:
        return f"{bare} please{mark}"
    if roll < 0.79:
        return f"{rng.choice(['So,', 'OK,', 'And', 'Now', 'Well,', 'Ok', 'Great.', 'Thanks.', 'Nice.'])} {lower_first(bare)}{mark}"
    if roll < 0.82:
        return f"I have a question. {bare}{mark}"
    if roll < 0.84:
        return f"{bare}{mark} {rng.choice(['Thanks!', 'Thank you.', 'I want to know.', 'Answer in one sentence.', 'Keep it short.'])}"
    if roll < 0.86:
        return f"I wonder: {lower_first(bare)}{mark}"
    return question


def request(rng, verb_phrase):
    """'tell me a joke' as a request."""
    return rng.choice([
        capital(verb_phrase), capital(verb_phrase) + ".", capital(verb_phrase) + "!",
            f"Please {verb_phrase}.", f"Can you {verb_phrase}?",
        f"Could you {verb_phrase}?", f"Can you please {verb_phrase}?", f"{capital(verb_phrase)}, please.",
            f"{capital(verb_phrase)} please",
        f"I would like you to {verb_phrase}.", f"Hi! {capital(verb_phrase)}.", f"Will you {verb_phrase}?",
            f"I want you to {verb_phrase}.",
        f"Would you {verb_phrase}?", f"Now {verb_phrase}.", capital(verb_phrase), verb_phrase])


ONSETS = "b c d f g h j k l m n p r s t v w z bl br ch cl cr dr fl fr gl gr kr pl pr qu sh sk sl sm sn sp st str th tr tw".split()
VOWELS = "a e i o u a e i o ai au ea ee ie oo ou y".split()
CODAS = ["", "", "", "b", "ck", "d", "f", "g", "k", "l", "m", "n", "nd", "ng", "nt", "p", "r", "rn", "rt",
    "s", "sh", "st", "t", "th", "x", "z"]
ENDS = ["", "", "", "", "tion", "ism", "ology", "ics", "er", "ing", "ium", "ia", "o", "y", "ity", "ment",
    "ish", "ian", "son", "land"]


def pseudo_word(rng):
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(rng.choice([1,
        2, 2, 3]))) + rng.choice(ENDS)
