#include "deploy/cli/bench/verse.h"

#include <string_view>

#include "common/random.h"

namespace tandem {
namespace {

// Each line is one pattern: A adjective, N noun, V verb, P place; other words stay as they are.
constexpr std::string_view kPatterns[] = {
    "The A N V beneath the A N", "And every N that V P P",      "When A N and A N V",
    "I saw the N V P, A and A",  "No N V so A as my N",         "Let A N V until the N V",
    "O N, your A N V P",         "Where N and N V P once more", "So V the N, so V the A N",
    "Yet in the N a A N V",
};
constexpr std::string_view kAdjectives[] = {
    "silver", "weary",   "golden",   "silent", "distant", "tender", "winter",  "amber",
    "hollow", "patient", "restless", "gentle", "broken",  "early",  "starlit", "quiet"};
constexpr std::string_view kNouns[] = {
    "lantern", "river",    "sparrow", "harbor", "orchard",  "shadow", "meadow", "hour",
    "candle",  "mountain", "ocean",   "willow", "stranger", "garden", "ember",  "morning"};
constexpr std::string_view kVerbs[] = {
    "wanders", "lingers", "trembles", "returns",  "slumbers", "whispers", "gathers", "remembers",
    "falters", "rises",   "listens",  "glimmers", "answers",  "drifts",   "waits",   "burns"};
constexpr std::string_view kPlaces[] = {"by the shore",    "below the hill",   "in falling snow",
                                        "beyond the gate", "across the years", "through the rain",
                                        "beside the fire", "under the moon"};

}  // namespace

std::string VerseLine(uint64_t seed, uint64_t i) {
  uint64_t draws = 0;
  const auto pick = [&](const auto& words) {
    const auto count = std::size(words);
    const auto place =
        static_cast<size_t>(UniformAt(seed, i, draws++) * static_cast<double>(count));
    return std::string(words[place]);
  };
  std::string line;
  const std::string pattern = pick(kPatterns);
  for (size_t at = 0; at < pattern.size(); ++at) {
    const bool is_slot =
        (at == 0 || pattern[at - 1] == ' ') &&
        (at + 1 == pattern.size() || pattern[at + 1] == ' ' || pattern[at + 1] == ',');
    if (is_slot && pattern[at] == 'A') {
      line += pick(kAdjectives);
    } else if (is_slot && pattern[at] == 'N') {
      line += pick(kNouns);
    } else if (is_slot && pattern[at] == 'V') {
      line += pick(kVerbs);
    } else if (is_slot && pattern[at] == 'P') {
      line += pick(kPlaces);
    } else {
      line += pattern[at];
    }
  }
  constexpr std::string_view kEnds[] = {",", ",", ";", ".", ""};
  return line + pick(kEnds) + "\n";
}

}  // namespace tandem
