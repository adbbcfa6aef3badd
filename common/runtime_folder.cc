#include "common/runtime_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace tandem {
namespace {

std::string UserName() {
  std::array<char, 4096> buffer;
  passwd user{};
  passwd* found = nullptr;
  const int error = getpwuid_r(getuid(), &user, buffer.data(), buffer.size(), &found);
  return error == 0 && found != nullptr ? found->pw_name : "";
}

}  // namespace

std::string RuntimeFolder() {
  return ChooseRuntimeFolder(std::getenv("XDG_RUNTIME_DIR"), {getuid(), UserName()}, {});
}

std::string ChooseRuntimeFolder(const char* xdg_runtime_dir, const RuntimeUser& user,
                                const LoginFolders& login) {
  if (xdg_runtime_dir == nullptr || *xdg_runtime_dir != '/') return "/tmp";
  const bool is_of_login = xdg_runtime_dir == login.users + "/" + std::to_string(user.id);
  const std::string linger = login.linger + "/" + user.name;
  if (is_of_login && access(linger.c_str(), F_OK) != 0) return "/tmp";
  // After `su` it is another user's, or gone.
  if (access(xdg_runtime_dir, W_OK | X_OK) != 0) return "/tmp";
  return xdg_runtime_dir;
}

}  // namespace tandem
