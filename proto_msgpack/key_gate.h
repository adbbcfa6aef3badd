#pragma once

// Lets only peers with one public key connect to a context's sockets that have keys (ZAP, ZeroMQ's
// authentication protocol). Thread: as its sockets.

#include <string>

#include "common/status.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {

class KeyGate {
 public:
  // Before the sockets are bound. public_key: Z85.
  Status Open(zmq::context_t* context, const std::string& public_key);
  void AddTo(PollSet* poll) { poll->Add(requests_); }
  // Answers the hosts that ask to connect.
  void Answer();
  void Close() { requests_.Close(); }

 private:
  std::string allowed_;  // the key's bytes
  Socket requests_;
  ReceivedMessage received_;
  ComplaintLimit complaints_;
};

}  // namespace tandem::wire
