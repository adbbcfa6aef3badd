#pragma once

// Replays traces recorded from vLLM 0.33.0's own scheduler and compares every field of every step.
// Where a trace has drafts or adapters, the recorded samples and drafts are the executor's.

#include <string>
#include <string_view>

namespace tandem {

// The traces of a .jsonl.gz file; with a policy, those scheduled by it. Returns their number.
size_t ReplayTraces(const std::string& path, std::string_view policy = "");

}  // namespace tandem
