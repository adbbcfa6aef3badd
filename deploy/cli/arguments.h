#pragma once

// Spellings of vLLM's command line that the flag tables do not know, rewritten into those they
// know:
//   --compilation-config.level 3, --kv-events-config.topics+ a,b   one JSON object for each flag
//   -O2, -O 2                                                      --optimization-level=2
//   --spec-method ngram and the like                               the flag that means the same
//   --logging-config '{"formatter": "json"}'                       the flag that the key is here
//   --max-model-len auto                                           -1
// Pure; any thread.

#include <string>
#include <string_view>
#include <vector>

#include "common/flags.h"
#include "common/status.h"

namespace tandem {

// INVALID_ARGUMENT: a dotted key without a value, or beside a value that is not a JSON object.
// Where a flag is given as JSON and by keys, a later one replaces keys of an earlier one. flags:
// all that are known, for their short names.
StatusOr<std::vector<std::string>> ExpandArguments(const std::vector<std::string>& args,
                                                   const std::vector<Flag>& flags);

// Its two steps, between which the words of a file are added. The first one rewrites spellings of
// single flags: --logging-config={"formatter": "json"} as --log-format=json, where keys that are
// flags here take the place of their object, which stays with its other keys; levels and lengths.
std::vector<std::string> RewriteFlags(const std::vector<std::string>& args,
                                      const std::vector<Flag>& flags);
// The second one makes one object of all keys of a flag. REQUIRES: words of RewriteFlags.
StatusOr<std::vector<std::string>> MergeKeys(const std::vector<std::string>& words,
                                             const std::vector<Flag>& flags);

// The name with dashes, in its long form and without keys, that an argument sets after expansion:
// "--spec-method=x" and "-sc.method" both set "speculative-config". "" for a bare word.
std::string FlagNameOf(std::string_view argument, const std::vector<Flag>& flags);

}  // namespace tandem
