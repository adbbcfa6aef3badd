#pragma once

// Finds the first stop string in a stream of text deltas and decides what may be shown already.
// Thread: one at a time (the shard that owns the stream). Sizes are bytes of UTF-8; deltas and stop
// strings are whole characters. Cannot fail. Cost: O(bytes × stop strings).
// Held back is exactly the longest suffix of the text that is a proper prefix of a stop string.
// Which one wins: the string that is complete first; of several complete at the same byte, the one
// listed first.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

class StopStrings {
 public:
  // include_in_output: on a match the stop string itself is shown too. Empty strings are ignored.
  StopStrings(std::vector<std::string> stop_strings, bool include_in_output);

  // Feeds one token's text and appends to *released what may be shown. On a match returns the stop
  // string: *released then ends the output, and nothing may be fed any more.
  // may_stop: false while min_tokens is not reached. A string that completes meanwhile is ordinary
  // text; one that merely begins meanwhile still counts.
  std::optional<std::string_view> Append(std::string_view delta, bool may_stop,
                                         std::string* released);
  // The stream ended without a match: appends what was held back.
  void Flush(std::string* released);

  size_t held_bytes() const { return held_.size(); }
  bool empty() const { return matchers_.empty(); }

 private:
  // Knuth–Morris–Pratt: how much of the string's start the text ends with.
  struct Matcher {
    std::string text;
    std::vector<size_t> border;  // border[n]: longest proper border of text[0, n)
    size_t matched = 0;
  };

  std::vector<Matcher> matchers_;
  bool include_in_output_;
  std::string held_;
};

}  // namespace tandem
