#pragma once

// vLLM 0.33's flags that no process here takes, one row each, so that a command line written for
// vLLM starts or is refused with a reason. What a flag asks for may be what happens anyway; then it
// has no effect and a warning says so. Anything else is refused with what to do instead.
// A row of the frontend's or the engine core's table has precedence: a feature that is built adds
// its flag there and deletes the row here. Pure; any thread.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

enum class VllmFlagKind {
  kSwitch,  // has a --no- twin and may be given true or false
  kValue,   // takes one word
  kList,    // takes all words up to the next flag
};

struct VllmFlag {
  std::string_view name;  // without dashes
  VllmFlagKind kind;
  // Values, separated by commas, that change nothing here; "*": none of them does.
  std::string_view harmless;
  // After a warning, why it has no effect; in a refusal, why not or what to do instead.
  std::string_view note;
  std::string_view short_name = {};  // without the dash
};

const std::vector<VllmFlag>& VllmFlags();

// The row that "--some_name", "--no-some-name", "--some-name=value" or "-ep" names, or nullptr.
const VllmFlag* FindVllmFlag(std::string_view argument);

// The warning, or why the flag cannot be given so. argument: as above, values: the words after it.
// Neither shows values of a flag whose harmless value is any, as some are secret.
StatusOr<std::string> JudgeVllmFlag(const VllmFlag& flag, std::string_view argument,
                                    const std::vector<std::string>& values);

}  // namespace tandem
