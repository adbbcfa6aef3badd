"""One exchange of any kind, and those that refer to earlier turns."""

from poems import any_poem, poem
from questions import fact, fact_chain
from small_talk import about_me, favourite, from_where, greeting, how_are_you, opinion, pet, reaction, recall_favourite, recall_name, recall_pet, recall_place, statement, user_job, user_name
from story_requests import story
from sums import big_sum, numbers
from tasks import fun_fact, joke, letter, listing, one_sentence, plan, riddle, say
from unknown import unknown


def follow_ups(rng, about):
    """A fact now and the question about it later, with something else in between."""
    tell, recall = rng.choice([(user_name, recall_name), (user_name, recall_name), (favourite,
        recall_favourite), (pet, recall_pet), (from_where, recall_place)])
    turns = tell(rng, about)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        turns += rng.choice([fact, numbers, reaction, joke, fact, how_are_you])(rng, about)
    return turns + recall(rng, about)


KINDS = [(greeting, 5), (how_are_you, 4), (about_me, 9), (reaction, 9), (user_name, 1), (recall_name, 1),
    (favourite, 1), (recall_favourite, 0.5), (pet, 0.5), (recall_pet, 0.3), (from_where, 0.5), (user_job, 2),
         (follow_ups, 7), (fact, 60), (fact_chain, 4), (numbers, 70), (big_sum, 1), (listing, 8), (joke, 2),
             (riddle, 1.5), (fun_fact, 2), (poem, 3), (any_poem, 1.5), (letter, 2), (opinion, 4), (statement,
             3), (plan, 2), (say, 9), (one_sentence, 2), (story, 7), (unknown, 26)]


def exchange(rng, about):
    maker = rng.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0]
    return maker(rng, about)
