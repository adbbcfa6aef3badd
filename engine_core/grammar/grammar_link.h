#pragma once

// The engine's end of one grammar's process. Thread: that of the compilers while it compiles, then
// the engine loop. Its death closes the process. An event, so copies share the socket.

#include <cstdint>
#include <memory>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

// What became of a grammar that was to be compiled; made by the compilers' thread, handled on the
// engine loop. Without a socket and with OK: the process of a compiled one, which was late with its
// masks, may have answered.
struct GrammarCompiled {
  int64_t grammar_id = 0;
  Status status;                     // not OK: its requests end with this error
  std::shared_ptr<UniqueFd> socket;  // of its process
};

}  // namespace tandem
