"""Counting, comparing and small sums."""

import world
from choose import capital, either
from phrasing import ask

NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()


def words_of(number):
    if number < 10:
        return NUMBER_WORDS[number]
    if number < 20:
        return TEENS[number - 10]
    if number < 100:
        return TENS[number // 10] + ("-" + NUMBER_WORDS[number % 10] if number % 10 else "")
    return "one hundred" if number == 100 else str(number)


def small(rng, high):
    """Mostly small numbers, as people ask for."""
    return rng.randint(0, 12) if rng.random() < 0.75 else rng.randint(0, high)


def operation(rng):
    """(left, sign, word, right, result)"""
    kind = rng.choices("+-*/", [5, 4, 2, 1])[0]
    if kind == "+":
        left, right = small(rng, 99), small(rng, 99)
        return left, "+", "plus", right, left + right
    if kind == "-":
        left, right = small(rng, 99), small(rng, 99)
        left, right = max(left, right), min(left, right)
        return left, "-", "minus", right, left - right
    left, right = rng.randint(0, 10), rng.randint(0, 10)
    if kind == "*":
        return left, rng.choice(["*", "x"]), "times", right, left * right
    left, right = max(left, 1), max(right, 1)
    return left * right, "/", "divided by", left, right


def sum_of_two(rng, about):
    left, sign, word, right, result = operation(rng)
    roll = rng.random()
    if roll < 0.42:
        question = either(rng,
            "What is {l} {w} {r}?|What is {l} {w} {r}?|What's {l} {w} {r}?|How much is {l} {w} {r}?|"
            "{l} {w} {r}|{l} {w} {r}?|Calculate {l} {w} {r}.|Can you tell me what {l} {w} {r} is?|"
            "What does {l} {w} {r} make?|Do you know what {l} {w} {r} is?|What do you get for {l} {w} {r}?").format(l=left, w=word, r=right)
        return [(ask(rng, question), f"{left} {word} {right} is {result}.")]
    if roll < 0.78:
        space = either(rng, "| | ")
        term = f"{left}{space}{sign}{space}{right}"
        question = either(rng,
            "{}|{}|What is {}?|What is {}?|{}?|{} =|{} = ?|{}=|{}=?|Calculate {}|Calculate {}.|"
            "How much is {}?|what's {}|Compute {}.|Solve {}|Can you compute {}?").format(term)
        return [(question, f"{left} {sign} {right} = {result}.")]
    if roll < 0.84 and result <= 100 and left <= 100 and sign in "+-":
        question = either(rng,
            "What is {l} {w} {r}?|How much is {l} {w} {r}?|{l} {w} {r}").format(l=words_of(left), w=word,
                r=words_of(right))
        return [(ask(rng, question), f"{capital(words_of(left))} {word} {words_of(right)} is "
            f"{words_of(result)}.")]
    if sign == "+":
        question = either(rng,
            "Add {l} and {r}.|What is the sum of {l} and {r}?|How much is {l} and {r}?|Add {l} to {r}.|"
            "Sum {l} and {r}").format(l=left, r=right)
        if question.startswith("Add") and " to " in question:
            left, right = right, left
        return [(ask(rng, question), f"{left} plus {right} is {result}.")]
    if sign == "-":
        question = either(rng,
            "Take {r} from {l}.|Subtract {r} from {l}.|What is the difference between {l} and {r}?|"
            "What is {l} take away {r}?").format(l=left, r=right)
        return [(ask(rng, question), f"{left} minus {right} is {result}.")]
    if word == "times":
        return [(ask(rng, either(rng,
            "Multiply {l} by {r}.|What is {l} multiplied by {r}?|What is the product of {l} and {r}?").format(l=left, r=right)), f"{left} times {right} is {result}.")]
    return [(ask(rng, either(rng,
        "Divide {l} by {r}.|What is {l} over {r}?|What is {l} divided by {r}?").format(l=left, r=right)),
            f"{left} divided by {right} is {result}.")]


GOODS = "oranges bananas sweets fish toys hats apples pears coins books balls cookies pencils eggs flowers stones marbles cards stars cakes nuts".split()


def word_problem(rng):
    name, other = rng.sample(world.HUMAN_NAMES[:60], 2)
    goods = rng.choice(GOODS)
    left, right = rng.randint(2, 12), rng.randint(1, 8)
    if rng.random() < 0.5:
        gets = either(rng, f"gets {right} more|finds {right} more|buys {right} more|gets {right} more from {other}|"
                      f"buys {right}|picks {right} more")
        result, sign = left + right, "plus"
    else:
        left, right = max(left, right) + 1, min(left, right)
        gets = either(rng, f"gives {right} to {other}|loses {right}|gives away {right}|eats {right}|sells {right}")
        result, sign = left - right, "minus"
    because = f"because {left} {sign} {right} is {result}."
    if rng.random() < 0.35:
        who, has, does, answer = "I", "have", "do I", f"You have {result} {goods} now, {because}"
        for verb in "get find buy pick give lose eat sell".split():
            gets = gets.replace(verb + "s ", verb + " ")
    else:
        who, has, does, answer = name, "has", f"does {name}", f"{name} has {result} {goods} now, {because}"
    question = either(rng, f"{who} {has} {left} {goods}. {who} {gets}.|{who} {has} {left} {goods} and {gets}.|"
                      f"If {who} {has} {left} {goods} and {gets},|{who} {has} {left} {goods} and then {gets}.")
    tail = either(rng, f"how many {goods} {does} have?|how many {goods} {does} have now?|how many {goods} {does} have left?|"
                  f"how many {does} have?|how many {does} have now?|how many are left?|how many {goods} are there now?")
    return f"{question} {tail if question.endswith(',') else capital(tail)}", answer


def number_question(rng):
    kind = rng.randrange(12)
    if kind == 0:
        number = small(rng, 98)
        return either(rng,
            f"What number comes after {number}?|What comes after {number}?|Which number is after {number}?"), f"The number after {number} is {number + 1}."
    if kind == 1:
        number = small(rng, 98) + 1
        return either(rng,
            f"What number comes before {number}?|What comes before {number}?|"
            f"Which number is before {number}?"), f"The number before {number} is {number - 1}."
    if kind in (2, 3):
        end = rng.choice([3, 5, 5, 10, 10, 10, 12, 15, 20, 20, rng.randint(2, 20)])
        asked = rng.choice([str(end), str(end), words_of(end)])
        return either(rng,
            f"Count to {asked}.|Count to {asked}|Count from 1 to {asked}.|Can you count to {asked}?|"
            f"Please count to {asked}.|Count up to {asked}."), ", ".join(str(i) for i in range(1,
                end + 1)) + "."
    if kind == 4:
        end = rng.choice([3, 5, 10, 10, rng.randint(2, 20)])
        return either(rng,
            f"Count down from {end}.|Count backwards from {end}.|Count from {end} to 1.|"
            f"Count down from {end} to 1."), ", ".join(str(i) for i in range(end, 0, -1)) + "."
    if kind == 5:
        start = rng.randint(2, 60)
        end = start + rng.randint(2, 9)
        return rng.choice([f"Count from {start} to {end}.",
            f"Can you count from {start} to {end}?"]), ", ".join(str(i) for i in range(start, end + 1)) + "."
    if kind in (6, 7):
        one, two = rng.sample(range(0, 100), 2)
        bigger = rng.random() < 0.6
        word = either(rng, "bigger|larger|greater|more") if bigger else rng.choice(["smaller", "less"])
        result = max(one, two) if bigger else min(one, two)
        if rng.random() < 0.6:
            return either(rng,
                f"Which is {word}, {one} or {two}?|What is {word}, {one} or {two}?|"
                f"Which number is {word}, {one} or {two}?"), f"{result} is {'bigger' if bigger else 'smaller'} than {one + two - result}."
        yes = (one > two) == bigger
        return f"Is {one} {word} than {two}?", f"{'Yes' if yes else 'No'}, {one} is {'bigger' if one > two else 'smaller'} than {two}."
    if kind == 8:
        number = rng.randint(0, 99)
        even = number % 2 == 0
        return f"Is {number} {rng.choice(['even', 'odd', 'an even number', 'an odd number', 'even or odd'])}?", f"{number} is {'even' if even else 'odd'}."
    if kind == 9:
        number = rng.randint(1, 49)
        if rng.random() < 0.5:
            return rng.choice([f"What is half of {number * 2}?",
                f"Half of {number * 2}?"]), f"Half of {number * 2} is {number}."
        return either(rng,
            f"What is double {number}?|What is twice {number}?|Double {number}"), f"Double {number} is {number * 2}."
    if kind == 10:
        three = [rng.randint(1, 12) for _ in range(3)]
        sign = rng.choice(["+", "plus"])
        text = f" {sign} ".join(map(str, three))
        return f"What is {text}?", f"{text} {'=' if sign == '+' else 'is'} {sum(three)}."
    return word_problem(rng)


def numbers(rng, about):
    roll = rng.random()
    if roll < 0.62:
        turns = sum_of_two(rng, about)
    else:
        question, answer = number_question(rng) if roll < 0.9 else word_problem(rng)
        turns = [(ask(rng, question), answer)]
    last = turns[-1][1].rstrip(".").split()[-1]
    if roll < 0.62 and last.isdigit() and rng.random() < 0.2:
        value, extra = int(last), rng.randint(1, 20)
        if rng.random() < 0.6:
            turns.append((either(rng,
                f"And plus {extra}?|Now add {extra}.|plus {extra}?|Add {extra} to that.|And {extra} more?"),
                    f"{value} plus {extra} is {value + extra}."))
        elif value >= extra:
            turns.append((either(rng,
                f"And minus {extra}?|Now take away {extra}.|minus {extra}?|Subtract {extra} from that."),
                    f"{value} minus {extra} is {value - extra}."))
    return turns


def big_sum(rng, about):
    left, right = rng.randint(200, 99999), rng.randint(13, 99999)
    sign, word = rng.choice([("*", "times"), ("+", "plus"), ("-", "minus"), ("/", "divided by"), ("*",
        "times")])
    user = either(rng,
        f"What is {left} {word} {right}?|{left} {sign} {right}|What is {left} {sign} {right}?|"
        f"Calculate {left}{sign}{right}|How much is {left} {word} {right}?")
    return [(user, "That is too hard for me. I am a very small model, and I can only add and subtract "
        "numbers below one hundred.")]
