#pragma once

// `tandem chat`: talks to a running server in the terminal, streaming, keeping the conversation.
// Ctrl-C stops a response, Ctrl-D or /exit ends. Reads lines from stdin, also from a pipe.
// Returns the process's exit status: 0, 1 when the server does not respond, 2 for bad flags.

#include <string>
#include <vector>

namespace tandem {

int RunChat(const std::vector<std::string>& args);

}  // namespace tandem
