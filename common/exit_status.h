#pragma once

// The exit statuses of all our programs, for scripts and systemd; docs/operator/hosts.md lists them
// for operators. What is wrong with the model has one status, whichever process finds it first.

namespace tandem {

enum ExitStatus : int {
  kExitOk = 0,        // ended by SIGTERM or SIGINT
  kExitFailed = 1,    // anything else: a port in use, an engine that cannot go on
  kExitBadFlags = 2,  // a command line that cannot work
  kExitBadModel = 3,  // the model's folder, tokenizer, templates or weights, or too little memory
};

}  // namespace tandem
