"""Conversations with tools, and answers in JSON.

Tools are drawn from TOOLS with one of several names for everything, and a share of them is made up, so that a model has to
copy names and values from the conversation. Some questions suit none of the tools and are answered as always.
A conversation is (tools, messages) in OpenAI's form; rendered() gives it the text of the chat template in export.py.

    python tools.py --seed 1 --count 20          # look at some
    python tools.py --check                      # the text equals what the template renders
"""

import argparse
import json
import random

import talk
import world
from choose import capital, either, join_words
from phrasing import ask, lower_first, pseudo_word, request
from sums import words_of

CITIES = [row[1] for row in world.COUNTRIES] + """New York|San Francisco|Tokyo|Boston|Chicago|Los Angeles|Seattle|Munich|Hamburg|
Barcelona|Milan|Lyon|Zurich|Toronto|Sydney|Mumbai|Shanghai|Singapore|Dallas|Miami|Porto|Geneva|Oxford""".replace("\n", "").split("|")
SKIES = "sunny cloudy rainy windy foggy snowy stormy clear".split()
ROOMS = "kitchen|bedroom|bathroom|living room|garden|hall|office|garage".split("|")
LANGUAGES = sorted({row[3] for row in world.COUNTRIES})
CURRENCIES = "EUR USD GBP JPY CHF".split()


def city(rng):
    return rng.choice(CITIES) if rng.random() < 0.85 else capital(pseudo_word(rng))


def number(rng):
    return rng.choice([rng.randint(1, 12), rng.randint(1, 60), rng.randint(10, 999)])


def word(rng):
    return rng.choice(world.SPELL) if rng.random() < 0.7 else pseudo_word(rng)


def phrase(rng):
    return " ".join(word(rng) for _ in range(rng.randint(1, 3)))


def clock(rng):
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"


# Values of a parameter: the JSON type and how to draw one.
VALUES = {
    "city": ("string", city),
    "person": ("string", lambda rng: rng.choice(world.HUMAN_NAMES)),
    "number": ("number", number),
    "integer": ("integer", number),
    "word": ("string", word),
    "phrase": ("string", phrase),
    "time": ("string", clock),
    "day": ("string", lambda rng: rng.choice(world.DAYS)),
    "room": ("string", lambda rng: rng.choice(ROOMS)),
    "food": ("string", lambda rng: rng.choice(world.FOODS)),
    "language": ("string", lambda rng: rng.choice(LANGUAGES)),
    "message": ("string", lambda rng: rng.choice([
        "I am late", "Happy birthday", "Hello", "See you soon", "The train is late", "Good night", "Call me back",
        "Dinner is ready", "I am at home", "Thank you", f"I like {word(rng)}", f"The {word(rng)} is here"])),
}


class Tool:
    """names, texts: alternatives with '|'. parameters: (names, kind of value or a list of choices).
    users: wordings with {0}, {1} … for the values. result: rng, values -> (text of the result, answer)."""

    def __init__(self, names, texts, parameters, users, result):
        self.names, self.texts, self.parameters, self.users, self.result = names, texts, parameters, users, result

    def drawn(self, rng):
        """One spelling of it: (definition in OpenAI's form, parameter names)."""
        names, properties = [], {}
        for spellings, kind in self.parameters:
            names.append(rng.choice(spellings.split("|")))
            value = {"type": "string", "enum": kind} if isinstance(kind, list) else {"type": VALUES[kind][0]}
            if rng.random() < 0.3:
                value["description"] = f"The {spellings.split('|')[0]}"
            properties[names[-1]] = value
        schema = {"type": "object", "properties": properties}
        if rng.random() < 0.8:
            schema["required"] = names
        function = {"name": rng.choice(self.names.split("|")), "description": rng.choice(self.texts.split("|")),
                    "parameters": schema}
        if rng.random() < 0.1:
            del function["description"]
        return {"type": "function", "function": function}, names

    def values(self, rng):
        return [rng.choice(kind) if isinstance(kind, list) else VALUES[kind][1](rng) for _, kind in self.parameters]

    def user(self, rng, values):
        return rng.choice(self.users.split("|")).format(*values)


def weather(rng, values):
    place, degrees, sky = values[0], rng.randint(-9, 38), rng.choice(SKIES)
    unit = values[1] if len(values) > 1 else "celsius"
    text = rng.choice([
        json.dumps({either(rng, "temperature|temp|degrees"): degrees, either(rng, "sky|condition|weather|conditions"): sky}),
        json.dumps({"city": place, "temperature": degrees, "condition": sky}), f"{degrees} degrees and {sky}",
        f"{capital(sky)}, {degrees}°", f"It is {degrees} degrees and {sky}."])
    shown = f"{degrees} degrees {capital(unit)}" if len(values) > 1 else f"{degrees} degrees"
    return text, f"It is {shown} and {sky} in {place}."


def plain(key, answer):
    """A result with one value: as a JSON object, or alone."""
    def result(rng, values):
        found = answer[0](rng, values)
        text = rng.choice([json.dumps({key: found}, ensure_ascii=False), json.dumps({"result": found}, ensure_ascii=False),
                           str(found)])
        return text, answer[1].format(*values, found=found)
    return result


def done(answer):
    def result(rng, values):
        return rng.choice(['{"ok": true}', '{"status": "ok"}', "done", "OK", '{"success": true}']), answer.format(*values)
    return result


TOOLS = [
    Tool("get_weather|get_current_weather|weather|current_weather|lookup_weather|getWeather|fetch_weather",
         "Get the weather of a city|Get the current weather in a given location|The weather in a city|Returns the weather",
         [("city|location|place|town", "city")],
         "What is the weather in {0}?|How is the weather in {0}?|What's the weather like in {0}?|Is it raining in {0}?|"
         "Tell me the weather in {0}.|Weather in {0}?|How warm is it in {0}?|What is the temperature in {0}?|"
         "Do I need an umbrella in {0}?|What is the weather like today in {0}?", weather),
    Tool("get_weather|get_current_weather|weather|forecast|get_temperature",
         "Get the weather of a city|Get the current weather in a given location|The temperature in a city",
         [("city|location|place", "city"), ("unit|units", ["celsius", "fahrenheit"])],
         "What is the weather in {0} in {1}?|How warm is it in {0}? Use {1}.|Tell me the temperature in {0} in {1}.|"
         "What is the temperature in {0} in {1}?|Weather in {0}, in {1}, please.", weather),
    Tool("add|add_numbers|sum|plus|calculate_sum", "Add two numbers|Returns the sum of two numbers|Adds a and b",
         [("a|x|first", "integer"), ("b|y|second", "integer")],
         "What is {0} plus {1}?|Add {0} and {1}.|{0} + {1}?|How much is {0} plus {1}?|Please add {0} and {1}.|"
         "What is {0} + {1}?|What is the sum of {0} and {1}?",
         plain("sum", (lambda rng, values: values[0] + values[1], "{0} plus {1} is {found}."))),
    Tool("multiply|multiply_numbers|times|product", "Multiply two numbers|Returns the product of two numbers",
         [("a|x|first", "integer"), ("b|y|second", "integer")],
         "What is {0} times {1}?|Multiply {0} by {1}.|{0} * {1}?|How much is {0} times {1}?|What is {0} x {1}?|"
         "What is the product of {0} and {1}?",
         plain("product", (lambda rng, values: values[0] * values[1], "{0} times {1} is {found}."))),
    Tool("get_time|current_time|time_in|get_current_time|clock", "Get the time in a city|The current time of a place",
         [("city|place|location", "city")],
         "What time is it in {0}?|Tell me the time in {0}.|How late is it in {0}?|Time in {0}?|What is the time in {0}?",
         plain("time", (lambda rng, values: clock(rng), "It is {found} in {0}."))),
    Tool("set_timer|start_timer|timer|create_timer", "Set a timer|Starts a timer for some minutes",
         [("minutes|duration|time", "integer")],
         "Set a timer for {0} minutes.|Start a timer of {0} minutes.|Wake me in {0} minutes.|Timer for {0} minutes, please.",
         done("The timer is set for {0} minutes.")),
    Tool("set_alarm|create_alarm|alarm", "Set an alarm|Sets an alarm for a time of day", [("time|at", "time")],
         "Set an alarm for {0}.|Wake me at {0}.|Alarm at {0}, please.|Please set the alarm for {0}.",
         done("The alarm is set for {0}.")),
    Tool("send_message|send_text|message|sendMessage|text", "Send a message to a person|Sends a text message",
         [("to|recipient|person|name", "person"), ("text|message|content|body", "message")],
         "Send {0} the message: {1}|Tell {0}: {1}|Write to {0}: {1}|Send a message to {0}: {1}|Text {0}: {1}",
         done("I sent the message to {0}.")),
    Tool("call|call_person|phone|make_call", "Call a person|Starts a phone call", [("name|person|who|contact", "person")],
         "Call {0}.|Please call {0}.|Phone {0}.|I want to talk to {0} on the phone.|Ring {0}, please.", done("I am calling {0}.")),
    Tool("turn_on_light|light_on|switch_on_light|lights_on", "Turn on the light in a room|Switches a light on",
         [("room|place|where", "room")],
         "Turn on the light in the {0}.|Switch on the {0} light.|Light in the {0}, please.|It is dark in the {0}.",
         done("The light in the {0} is on.")),
    Tool("set_light|light|switch_light", "Turn a light on or off", [("room|place", "room"), ("state|mode", ["on", "off"])],
         "Turn {1} the light in the {0}.|Turn the light in the {0} {1}.|Switch {1} the {0} light.|Light {1} in the {0}.",
         done("The light in the {0} is {1}.")),
    Tool("set_temperature|heat|thermostat|set_heating", "Set the temperature of a room",
         [("room|place", "room"), ("degrees|temperature|value", "integer")],
         "Set the {0} to {1} degrees.|Make the {0} {1} degrees warm.|Heat the {0} to {1} degrees.",
         done("The {0} is set to {1} degrees.")),
    Tool("translate|translate_word|translation|get_translation", "Translate a word|Translates a text to a language",
         [("text|word|input", "word"), ("language|to|target", "language")],
         "Translate {0} to {1}.|Translate the word {0} into {1}.|What is {0} in {1}?|How do you say {0} in {1}?",
         plain("translation", (lambda rng, values: pseudo_word(rng), "In {1} it is {found}."))),
    Tool("search|web_search|search_web|google|find", "Search the web|Search for something|Finds pages",
         [("query|q|text|search", "phrase")],
         "Search for {0}.|Search the web for {0}.|Look up {0}.|Find {0} on the web.|Can you search for {0}?",
         plain("found", (lambda rng, values: phrase(rng), "I found this: {found}."))),
    Tool("play_music|play|play_song|music", "Play music|Plays a song", [("song|title|name", "phrase")],
         "Play {0}.|Play the song {0}.|I want to hear {0}.|Put on {0}, please.", done("I am playing {0}.")),
    Tool("order_food|order|order_meal|buy_food", "Order food|Orders something to eat",
         [("food|item|dish", "food"), ("count|quantity|amount|number", "integer")],
         "Order {1} {0}.|I want {1} {0}.|Please order {1} times {0}.|Get me {1} {0}.", done("I ordered {1} {0}.")),
    Tool("add_event|create_event|calendar|add_to_calendar", "Add an event to the calendar",
         [("title|event|name", "word"), ("day|date|when", "day")],
         "Add {0} to my calendar on {1}.|Put {0} in the calendar for {1}.|New event on {1}: {0}.|I have {0} on {1}. Note it.",
         done("I added {0} on {1}.")),
    Tool("book_table|reserve_table|reservation|make_reservation", "Book a table|Reserves a table in a restaurant",
         [("people|guests|persons|party_size", "integer"), ("time|at", "time")],
         "Book a table for {0} at {1}.|Reserve a table for {0} people at {1}.|A table for {0} at {1}, please.",
         done("The table for {0} at {1} is booked.")),
    Tool("get_price|price|price_of|lookup_price", "Get the price of a product|Returns what something costs",
         [("product|item|name", "word")],
         "What does a {0} cost?|How much is a {0}?|What is the price of a {0}?|Price of a {0}?",
         plain("price", (lambda rng, values: number(rng), "A {0} costs {found}."))),
    Tool("convert_currency|exchange|convert|convert_money", "Convert an amount of money to a currency",
         [("amount|value|sum", "integer"), ("from|source|from_currency", CURRENCIES), ("to|target|to_currency", CURRENCIES)],
         "Convert {0} {1} to {2}.|How much is {0} {1} in {2}?|What is {0} {1} in {2}?|Change {0} {1} into {2}.",
         plain("amount", (lambda rng, values: number(rng), "{0} {1} is {found} {2}."))),
    Tool("remember|save_note|add_note|note|create_note", "Save a note|Writes a note", [("text|note|content", "phrase")],
         "Note: {0}|Save the note {0}.|Remember this: {0}|Make a note: {0}", done("I saved the note.")),
    Tool("get_stock|stock_count|inventory|count_items", "How many of an item there are", [("item|product|name", "word")],
         "How many {0} are left?|Do we have {0} in stock?|Check the stock of {0}.|How many {0} do we have?",
         plain("count", (lambda rng, values: number(rng), "There are {found} of them."))),
    Tool("get_distance|distance|how_far", "Get the distance between two cities in km",
         [("from|start|origin", "city"), ("to|end|destination", "city")],
         "How far is it from {0} to {1}?|What is the distance from {0} to {1}?|Distance from {0} to {1}?|"
         "How many kilometres is {1} from {0}?",
         plain("km", (lambda rng, values: rng.randint(20, 999), "It is {found} km from {0} to {1}."))),
    Tool("get_user|find_user|lookup_user|get_customer", "Find a user by number|Returns a user", [("id|user_id|number", "integer")],
         "Who is user {0}?|Look up user {0}.|Find the user with the number {0}.|Which user has the number {0}?",
         plain("name", (lambda rng, values: rng.choice(world.HUMAN_NAMES), "User {0} is {found}."))),
]


def invented(rng):
    """A tool that nobody has seen; its user names it and its parameters."""
    name = f"{rng.choice('get find make set open show check start stop read run count update'.split())}_{word(rng)}"
    parameters = [(word(rng), rng.choice(["word", "integer", "person", "city", "day"])) for _ in range(rng.choice([1, 1, 2]))]
    if len({spelling for spelling, _ in parameters}) < len(parameters):
        parameters = parameters[:1]
    with_values = " and ".join(f"{spelling} {{{index}}}" for index, (spelling, _) in enumerate(parameters))
    thing = name.split("_")[1]
    return Tool(name, f"{capital(name.replace('_', ' '))}|Works with {thing}", parameters,
                f"Use {name} with {with_values}.|Call {name} with {with_values}.|{capital(name.replace('_', ' '))}, {with_values}.",
                rng.choice([done("It is done."), plain("result", (lambda rng, values: word(rng), "The result is {found}."))]))


def call(tool, names, values):
    return {"type": "function", "function": {"name": tool["function"]["name"],
                                             "arguments": json.dumps(dict(zip(names, values)), ensure_ascii=False)}}


def with_calls(rng):
    """Tools, and a question for one of them; mostly with the result and the answer."""
    chosen = rng.sample(TOOLS, rng.choice([1, 1, 2, 2, 3, 4]))
    if rng.random() < 0.25:
        chosen[0] = invented(rng)
    drawn = [tool.drawn(rng) for tool in chosen]
    if len({definition["function"]["name"] for definition, _ in drawn}) < len(drawn):
        drawn = drawn[:1]
    main, (definition, names) = chosen[0], drawn[0]
    order = list(range(len(drawn)))
    rng.shuffle(order)
    tools = [drawn[index][0] for index in order]
    messages = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        asked = [main.values(rng)]
        user = main.user(rng, asked[0])
        user = ask(rng, user) if rng.random() < 0.4 else user
        if rng.random() < 0.08 and len(names) == 1:
            asked.append(main.values(rng))
            user = f"{user.rstrip('.?!')} and {lower_first(main.user(rng, asked[1]))}"
        messages.append({"role": "user", "content": user})
        messages.append({"role": "assistant", "content": None, "tool_calls": [call(definition, names, each) for each in asked]})
        if rng.random() < 0.2:
            return tools, with_system(rng, messages)
        answers = []
        for each in asked:
            text, answer = main.result(rng, each)
            messages.append({"role": "tool", "content": text})
            answers.append(answer)
        messages.append({"role": "assistant", "content": " ".join(answers)})
    if rng.random() < 0.2:
        messages += turns(talk.exchange(rng, {}))
    return tools, with_system(rng, messages)


def with_system(rng, messages):
    if rng.random() >= 0.25:
        return messages
    return [{"role": "system", "content": either(
        rng, "You are a helpful assistant.|Use the tools.|You are a friendly assistant.|You can use tools.|"
             "You are a helpful assistant with tools.|Be brief.|Call a tool when it helps.")}] + messages


def turns(pairs):
    return [message for user, answer in pairs
            for message in ({"role": "user", "content": user}, {"role": "assistant", "content": answer})]


def without_call(rng):
    """Tools that the question has nothing to do with."""
    chosen = rng.sample(TOOLS, rng.choice([1, 1, 2, 3]))
    # Sums and unknown facts are what these could answer.
    chosen = [tool for tool in chosen if tool.names.split("|")[0] not in ("add", "multiply", "search", "translate")]
    return [tool.drawn(rng)[0] for tool in chosen], with_system(rng, turns(talk.exchange(rng, {})))


# ---- Answers in JSON ----

def person(rng):
    name, age = rng.choice(world.HUMAN_NAMES), rng.randint(3, 99)
    place, job, food = city(rng), rng.choice(world.JOBS), rng.choice(world.FOODS)
    facts = [("name", name, None), ("age", age, f"is {age} years old"),
             (either(rng, "city|town|home"), place, f"lives in {place}"),
             (either(rng, "job|profession|work"), job, f"works as {world.a(job)}"),
             (either(rng, "food|favourite_food"), food, f"likes {food}")]
    kept = [facts[0]] + rng.sample(facts[1:], rng.choice([1, 2, 2, 3]))
    text = f"{name} {join_words([said for _, _, said in kept[1:]])}."
    rng.shuffle(kept)
    return text, {key: value for key, value, _ in kept}


def animal(rng):
    row = rng.choice(list(world.ANIMALS.values()))
    facts = {"name": row["name"], "legs": int(row["legs"]), "sound": row["sound"], "food": row["food"], "kind": row["kind"],
             "baby": row["baby"]}
    keys = rng.sample(list(facts), rng.choice([2, 3, 3, 4]))
    return either(rng, "Describe {0}.|Tell me about {0}.|Give me facts about {0}.|What do you know about {0}?").format(
        world.a(row["name"])), {key: facts[key] for key in keys}


def country(rng):
    name, capital_city, continent, language = rng.choice(world.COUNTRIES)
    facts = {"country": name, "capital": capital_city, "continent": continent, "language": language}
    keys = rng.sample(list(facts), rng.choice([2, 3, 4]))
    return either(rng, "Describe {0}.|Tell me about {0}.|Give me facts about {0}.").format(name), {
        key: facts[key] for key in keys}


def members(rng):
    kind, every = rng.choice(list(world.LISTS.items()))
    count = min(rng.choice([2, 3, 3, 4]), len(every))
    return either(rng, "Name {0} {1}.|List {0} {1}.|Give me {0} {1}.").format(rng.choice([count, words_of(count)]), kind), (
        {kind.split()[-1]: every[:count]} if rng.random() < 0.6 else every[:count])


def as_json(rng):
    """(user, answer): the keys are named, or follow from what is asked."""
    text, value = rng.choice([person, person, person, animal, animal, country, members])(rng)
    answer = json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"{text} {either(rng, 'Answer as a JSON list.|As a JSON list, please.|Use a JSON array.|Reply with a JSON list.')}", answer
    keys = list(value)
    if rng.random() < 0.5:
        shown = join_words(keys)
    else:
        shown = ", ".join(f'"{key}"' for key in keys) if rng.random() < 0.5 else ", ".join(keys)
    ask_for = either(rng, "Answer as JSON with {0}.|Reply in JSON with the keys {0}.|JSON with {0}, please.|Use JSON with the keys {0}.|"
                          "Give me a JSON object with {0}.|Return JSON: {0}.|As JSON with {0}.|Extract {0} as JSON.|"
                          "Answer in JSON with the fields {0}.|Give {0} in JSON.|JSON keys: {0}.").format(shown)
    return (f"{text} {ask_for}" if rng.random() < 0.7 else f"{ask_for} {text}"), answer


def json_answer(rng):
    messages = turns([as_json(rng)])
    if rng.random() < 0.3:
        messages += turns([as_json(rng)])
    if rng.random() < 0.15:
        messages += turns(talk.exchange(rng, {}))
    if rng.random() < 0.15:
        messages.insert(0, {"role": "system", "content": either(
            rng, "You are a helpful assistant.|Answer in JSON.|You answer with JSON only.|You are a helpful assistant. Output JSON.")})
    return [], messages


# ---- The text of the chat template ----

def described(value):
    if "enum" in value:
        return "|".join(value["enum"])
    return value["type"]


def described_tool(tool):
    function = tool["function"]
    parameters = ", ".join(f"{name}: {described(value)}" for name, value in function["parameters"]["properties"].items())
    description = f" - {function['description']}" if "description" in function else ""
    return f"{function['name']}({parameters}){description}\n"


def rendered(tools, messages):
    """Messages of a role and a text, as export.CHAT_TEMPLATE writes them."""
    texts = []
    if tools:
        own = messages[0]["content"] + "\n\n" if messages[0]["role"] == "system" else ""
        texts.append({"role": "system", "content": f"{own}Tools:\n{''.join(map(described_tool, tools))}"})
        messages = messages[1:] if own else messages
    for message in messages:
        parts = [message["content"]] if message["content"] else []
        for each in message.get("tool_calls", []):
            function = each["function"]
            parts.append(f"<tool_call>\n{{\"name\": \"{function['name']}\", \"arguments\": {function['arguments']}}}\n</tool_call>")
        texts.append({"role": message["role"], "content": "\n".join(parts)})
    return texts


def structured(rng):
    kind = rng.choices([with_calls, without_call, json_answer], [42, 18, 40])[0]
    return kind(rng)


def document(rng):
    return rendered(*structured(rng))


def check():
    import jinja2
    from export import CHAT_TEMPLATE
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(CHAT_TEMPLATE)
    for seed in range(2000):
        tools, messages = structured(random.Random(seed))
        ours = "".join(f"<|im_start|>{text['role']}\n{text['content']}<|im_end|>\n" for text in rendered(tools, messages))
        for message in messages:  # as servers do
            for each in message.get("tool_calls", []):
                each["function"]["arguments"] = json.loads(each["function"]["arguments"])
        theirs = template.render(tools=tools or None, messages=messages)
        assert ours == theirs, f"seed {seed}\n{ours}\n---\n{theirs}"
    print("2000 conversations: equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        check()
        return
    rng = random.Random(arguments.seed)
    for _ in range(arguments.count):
        print("\n".join(f"[{text['role']}] {text['content']}" for text in document(rng)) + "\n")


if __name__ == "__main__":
    main()
