#include "proto_msgpack/engine_group.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "common/log.h"
#include "common/unique_fd.h"

namespace tandem::wire {
namespace {

constexpr std::string_view kGo = "READY";
// Of the group of engines, and of those that their ranks form for it.
constexpr size_t kNumPorts = 8;

// They are free now: the engines bind them.
StatusOr<std::vector<int>> FreePorts() {
  std::vector<UniqueFd> sockets;
  std::vector<int> ports;
  while (ports.size() < kNumPorts) {
    UniqueFd& fd = sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    socklen_t size = sizeof(name);
    auto* const address = reinterpret_cast<sockaddr*>(&name);
    if (!fd || bind(fd.get(), address, size) != 0 || getsockname(fd.get(), address, &size) != 0) {
      return ErrnoError(errno, "a port for the group of engines");
    }
    ports.push_back(ntohs(name.sin_port));
  }
  return ports;
}

}  // namespace

Status EngineGroup::Start(zmq::context_t* context, const std::string& data_address,
                          const std::string& master, int num_engines, InitMessage* init) {
  num_engines_ = num_engines;
  words_.Open(*context, zmq::socket_type::xpub);
  words_.PassOnEachSubscription();
  reports_.Open(*context, zmq::socket_type::pull);
  for (Socket* const socket : {&words_, &reports_}) {
    socket->NoticeVanishedHosts();
    RETURN_IF_ERROR(socket->Bind(data_address + ":0"));
  }
  init->addresses.coordinator_input = words_.bound_address();  // the engine's
  init->addresses.coordinator_output = reports_.bound_address();
  ASSIGN_OR_RETURN(const std::vector<int> ports, FreePorts());
  std::vector<RawValue> others;
  for (size_t i = 1; i < ports.size(); ++i) others.push_back(PackedInt(ports[i]));
  init->parallel_config = PackedMap({{"data_parallel_master_ip", PackedString(master)},
                                     {"data_parallel_master_port", PackedInt(ports.front())},
                                     {"_data_parallel_master_port_list", PackedArray(others)},
                                     {"_coord_store_port", PackedInt(0)},
                                     {"data_parallel_size", PackedInt(num_engines)}});
  return OkStatus();
}

void EngineGroup::AddTo(PollSet* poll) {
  poll->Add(words_);
  poll->Add(reports_);
}

void EngineGroup::Receive() {
  ReceiveSubscriptions();
  while (reports_.may_have_input() && reports_.Receive(&received_)) HandleReport();
}

void EngineGroup::ReceiveSubscriptions() {
  while (words_.may_have_input() && words_.Receive(&received_)) {
    const std::string_view word = received_.frames().front();
    if (word == kSubscribe) {
      if (!was_complete_ && ++num_subscribed_ == num_engines_) {
        was_complete_ = true;
        LOG_INFO << "all " << num_engines_ << " engines of the group are there";
      }
      const std::string_view frames[] = {kGo};
      if (was_complete_) words_.Send(frames);
    } else if (word == kUnsubscribe) {
      if (num_subscribed_ > 0) --num_subscribed_;
    } else if (complaints_.Next()) {
      LOG_WARNING << "a message of " << word.size() << " bytes is no subscription of an engine";
    }
  }
}

void EngineGroup::HandleReport() {
  const Status status = Decode(received_.frames(), &report_);
  const bool is_known = report_.engine_index >= 0 && report_.engine_index < num_engines_;
  if (!status.ok() || !is_known) {
    if (complaints_.Next()) {
      LOG_WARNING << "an engine's report cannot be used: "
                  << (status.ok()
                          ? "engine " + std::to_string(report_.engine_index) + " is not expected"
                          : std::string(status.message()));
    }
    return;
  }
  const std::optional<StartDpWave> start = waves_.OnReport(report_);
  if (!start) return;
  Encode(*start, &encoded_);
  const char type = static_cast<char>(RequestType::kStartDpWave);
  const std::string_view frames[] = {std::string_view(&type, 1), encoded_.body};
  words_.Send(frames);
}

void EngineGroup::Close() {
  words_.Close();
  reports_.Close();
}

}  // namespace tandem::wire
