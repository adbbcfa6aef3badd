#pragma once

// What of vLLM's --compilation-config and --optimization-level there is here: which steps a GPU
// runs as captured graphs. The rest is torch.compile's, which is not used; its keys are accepted
// and named in `ignored`. Pure; any thread. Failure: INVALID_ARGUMENT for an unknown key, a value
// of the wrong type, and on cuda a cudagraph_mode that would run other steps than were asked for.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {

struct CompilationConfig {
  bool captures = true;  // decode steps
  std::optional<int64_t> max_capture_size;
  std::vector<int64_t> capture_sizes;
  std::vector<std::string> ignored;  // keys without effect
  std::string note;                  // what is not as asked for and does no harm; "" mostly
};

// text: the JSON object, or ""; level: 0 to 3, absent: 2. is_cuda: graphs exist only there.
StatusOr<CompilationConfig> ParseCompilationConfig(const std::string& text,
                                                   std::optional<int64_t> level, bool is_cuda);

}  // namespace tandem
