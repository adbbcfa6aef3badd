#pragma once

// Keys for what crosses between hosts: messages over tcp are encrypted, and only engines and
// frontends with keys of the same set talk to each other (CurveZMQ). A set is a folder with a file
// for the frontend and one for its engines; each has its own secret and the other's public key, so
// an engine's host cannot be taken for the frontend's. Files are this user's alone (0600).

#include <string>

#include "common/status.h"

namespace tandem::wire {

struct TcpKeys {  // Z85, 40 characters each
  std::string own_public;
  std::string own_secret;
  std::string peer_public;
};

enum class TcpSide { kFrontend, kEngine };

// "frontend.keys" or "engine.keys".
std::string TcpKeysName(TcpSide side);
// Makes the folder, if it is not there, and both files in it. ALREADY_EXISTS: one is there.
Status MakeTcpKeys(const std::string& folder);
// Failure names the file and what is wrong with it.
StatusOr<TcpKeys> ReadTcpKeys(const std::string& folder, TcpSide side);

// INVALID_ARGUMENT unless the flags --tcp-keys and --insecure-tcp fit the address: what reaches
// another host is either encrypted or asked for as it is.
Status CheckTcp(const std::string& address, const std::string& keys_folder, bool is_insecure);

}  // namespace tandem::wire
