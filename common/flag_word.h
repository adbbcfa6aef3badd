#pragma once

// How the words of a command line name flags. Pure; any thread.

#include <string>
#include <string_view>

namespace tandem {

// A word that begins with a dash and is no number: "-1" is a value.
bool IsFlagWord(std::string_view word);
// "--max_num_seqs" -> "--max-num-seqs": both spellings name a flag.
std::string WithDashes(std::string_view name);

}  // namespace tandem
