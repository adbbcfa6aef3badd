#pragma once

// A terminal that shows one page after another and gives itself back as it was: its other screen,
// without echo and cursor. Control sequences are the ECMA-48 ones that every terminal since the
// VT100 has, so there is no terminal database. One per process, thread: main.
// q and Ctrl-C are one signal. It and a change of the size reach the process only in waits with the
// mask it had before, so that none is missed between a look and a wait.

#include <signal.h>

#include <string>
#include <vector>

#include "deploy/cli/top/screen.h"

namespace tandem {

class Terminal {
 public:
  // REQUIRES: fd is a terminal. colors: for problems.
  Terminal(int fd, bool colors);
  ~Terminal();
  Terminal(const Terminal&) = delete;

  // Shows the first lines and columns that there is room for, at the terminal's size of now.
  void Show(const std::vector<ScreenLine>& lines) const;
  bool should_end() const;

 private:
  int fd_;
  bool colors_;
  bool has_modes_ = false;
  std::vector<char> modes_;  // a termios as it was
  sigset_t signals_;         // the mask as it was
};

}  // namespace tandem
