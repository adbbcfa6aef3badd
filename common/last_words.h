#pragma once

// What a process writes to stderr before it ends by a mistake of its own, after what its log still
// holds, and in its form. Waits a second for a reader at most: a process that hung here would not
// be replaced. Thread: any; also from a signal handler.

#include <string_view>

namespace tandem {

void WriteLastWords(std::string_view text);

}  // namespace tandem
