#pragma once

// `tandem top`: what a running server does now, in the terminal: /dashboard's page as text. Without
// a terminal, or with --once, plain text. Thread: main. Returns the process's exit status: 0, 1
// when the one look of --once fails, 2 for bad flags.

#include <string>
#include <vector>

#include "common/flags.h"

namespace tandem {

struct TopConfig {
  std::string url = "http://127.0.0.1:8000";
  std::string api_key;
  double interval = 1;  // seconds
  bool once = false;
};

std::vector<Flag> TopFlags(TopConfig& config);

int RunTop(const std::vector<std::string>& args);

}  // namespace tandem
