#pragma once

// Where programs make the folders of sockets that live as long as they do. Thread: any.

#include <string>

namespace tandem {

// XDG_RUNTIME_DIR where files can be made in it, else /tmp. The folder of a login session goes with
// the user's last session, where the user does not linger; what outlives the session would meet
// nobody any more, so /tmp is taken there, too.
std::string RuntimeFolder();

// The same from XDG_RUNTIME_DIR (or null), the user, and where logind has its folders.
struct RuntimeUser {
  unsigned id = 0;
  std::string name;
};
struct LoginFolders {
  std::string users = "/run/user";                 // a folder for each that is logged in
  std::string linger = "/var/lib/systemd/linger";  // a file for each that lingers
};
std::string ChooseRuntimeFolder(const char* xdg_runtime_dir, const RuntimeUser& user,
                                const LoginFolders& login);

}  // namespace tandem
