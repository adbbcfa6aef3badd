#pragma once

// The life of a process that holds one grammar: compiles it, then keeps the matchers of the
// requests that use it and writes their masks. It works on what a stranger wrote, so it has limits,
// and whatever happens to it happens to those requests alone.
// Thread: main of a process that was forked for this. Ends when the engine closes the socket.
// Failure: an error reply, then the end of the process.

#include <cstdint>

#include "common/unique_fd.h"
#include "grammar/compiler/vocabulary.h"
#include "grammar/mask_rows.h"

namespace tandem {

// In a process that waits for its grammar: compiles one that nobody uses, so that the pages that
// the next one needs are its own.
void RehearseGrammar(GrammarVocabulary* vocabulary);

// Limits of one grammar's process.
struct GrammarLimits {
  int compile_cpu_ms = 10'000;
  int step_cpu_ms = 500;                    // of all its requests; up to twice as much passes
  int64_t memory_bytes = int64_t{1} << 30;  // beyond the vocabulary
};

// spec: a memory file with a packed GrammarSpec. Returns the process's exit status.
int RunGrammarWorker(GrammarVocabulary* vocabulary, const MaskRows& masks, UniqueFd socket,
                     UniqueFd spec, const GrammarLimits& limits);

}  // namespace tandem
