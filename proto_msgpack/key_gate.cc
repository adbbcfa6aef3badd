#include "proto_msgpack/key_gate.h"

#include <string_view>

#include "common/log.h"

namespace tandem::wire {

Status KeyGate::Open(zmq::context_t* context, const std::string& public_key) {
  allowed_ = BytesOfKey(public_key);
  requests_.Open(*context, zmq::socket_type::rep);
  return requests_.Bind("inproc://zeromq.zap.01");
}

// Frames: version, request id, domain, address, identity, mechanism, credentials.
void KeyGate::Answer() {
  while (requests_.may_have_input() && requests_.Receive(&received_)) {
    const auto frames = received_.frames();
    const bool is_known = frames.size() == 7 && frames[5] == "CURVE" && frames[6] == allowed_;
    if (!is_known && complaints_.Next()) {
      LOG_WARNING << (frames.size() > 3 ? frames[3] : "a peer")
                  << " is refused: its key is not of the set in --tcp-keys";
    }
    const std::string_view id = frames.size() > 1 ? frames[1] : "";
    const std::string_view reply[] = {
        "1.0", id, is_known ? "200" : "400", is_known ? "OK" : "unknown key", "", ""};
    requests_.Send(reply);
  }
}

}  // namespace tandem::wire
