#pragma once

// SIGHUP for commands that end with their terminal, but not when nohup started them. Thread: any.

namespace tandem {

// As nohup has it. Where the signal is only blocked it would arrive all the same.
bool IsHangupIgnored();

}  // namespace tandem
