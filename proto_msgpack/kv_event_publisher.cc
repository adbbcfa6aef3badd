#include "proto_msgpack/kv_event_publisher.h"

#include <atomic>
#include <deque>
#include <string_view>
#include <thread>

#include "common/log.h"
#include "common/mailbox.h"
#include "common/strings.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {
namespace {

constexpr int kLingerMs = 1000;
constexpr int64_t kEndOfReplay = -1;

std::string BigEndian(int64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> shift));
  }
  return bytes;
}

int64_t FromBigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return static_cast<int64_t>(value);
}

// An endpoint of an interface or a file of ours is bound; one with a host's name is connected to,
// because a subscriber listens there.
bool IsBound(std::string_view endpoint) {
  return endpoint.find('*') != std::string_view::npos ||
         endpoint.find("::") != std::string_view::npos || endpoint.starts_with("ipc://") ||
         endpoint.starts_with("inproc://");
}

bool AnyPort(std::string_view endpoint) {
  return endpoint.starts_with("tcp://") && (endpoint.ends_with(":*") || endpoint.ends_with(":0"));
}

}  // namespace

StatusOr<std::string> KvEndpointOfRank(const std::string& endpoint, int rank) {
  if (!endpoint.starts_with("tcp://")) {
    return rank == 0 ? endpoint : endpoint + "_dp" + std::to_string(rank);
  }
  const size_t colon = endpoint.rfind(':');
  const std::string port = endpoint.substr(colon + 1);
  if (port == "*" || port == "0") return endpoint;
  const std::optional<int64_t> number = ParseNumber<int64_t>(port);
  if (!number || *number < 1 || *number + rank > 65535) {
    return InvalidArgumentError("KV events endpoint " + endpoint + ": needs a port of at most " +
                                std::to_string(65535 - rank));
  }
  return endpoint.substr(0, colon + 1) + std::to_string(*number + rank);
}

class KvEventPublisher::Loop {
 public:
  explicit Loop(KvEventPublisherOptions options)
      : options_(std::move(options)), queue_([this] { wake_up_.Signal(); }) {}

  Status Start();
  const KvEventsConfig& config() const { return options_.config; }
  void Publish(KvEventBatch batch);
  void Close();

 private:
  struct Numbered {
    int64_t sequence = 0;
    KvEventBatch batch;
  };
  struct Sent {
    int64_t sequence = 0;
    std::string payload;
  };

  Status OpenReplay();
  void Run();
  void SendQueued();
  void SendReplays();
  void Replay(std::string_view peer, int64_t first);

  KvEventPublisherOptions options_;
  WakeUp wake_up_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> num_queued_{0};
  int64_t next_sequence_ = 0;  // Publish's thread
  ComplaintLimit drops_;       // likewise
  Mailbox<Numbered> queue_;

  zmq::context_t context_ = MakeContext();  // outlives the sockets
  Socket publisher_;
  Socket replay_;
  PollSet poll_;
  std::vector<Numbered> drained_;
  std::deque<Sent> sent_;  // for replay, oldest first
  ReceivedMessage received_;
  ComplaintLimit complaints_;
  std::thread thread_;
};

Status KvEventPublisher::Loop::Start() {
  KvEventsConfig& config = options_.config;
  ASSIGN_OR_RETURN(config.endpoint, KvEndpointOfRank(config.endpoint, options_.data_parallel_rank));
  publisher_.Open(context_, zmq::socket_type::pub);
  publisher_.SetSendLimit(config.hwm);
  WarnIfOpenToNetwork(config.endpoint);
  if (IsBound(config.endpoint)) {
    RETURN_IF_ERROR(publisher_.Bind(config.endpoint));
    if (AnyPort(config.endpoint)) config.endpoint = publisher_.bound_address();
  } else {
    RETURN_IF_ERROR(publisher_.Connect(config.endpoint));
  }
  if (config.replay_endpoint) RETURN_IF_ERROR(OpenReplay());
  LOG_INFO << "KV events at " << config.endpoint << ", topic \"" << config.topic << "\", replay "
           << config.replay_endpoint.value_or("off");
  poll_.Reset(wake_up_);
  poll_.Add(replay_);
  thread_ = std::thread([this] { Run(); });
  return OkStatus();
}

Status KvEventPublisher::Loop::OpenReplay() {
  KvEventsConfig& config = options_.config;
  ASSIGN_OR_RETURN(std::string endpoint,
                   KvEndpointOfRank(*config.replay_endpoint, options_.data_parallel_rank));
  replay_.Open(context_, zmq::socket_type::router);
  // One whole replay for a client that does not read; past that it loses batches and costs us no
  // more memory.
  replay_.SetSendLimit(config.buffer_steps + 1);
  WarnIfOpenToNetwork(endpoint);
  RETURN_IF_ERROR(replay_.Bind(endpoint));
  config.replay_endpoint = AnyPort(endpoint) ? replay_.bound_address() : endpoint;
  return OkStatus();
}

void KvEventPublisher::Loop::Publish(KvEventBatch batch) {
  const int64_t sequence = next_sequence_++;
  if (num_queued_ >= options_.config.max_queue_size) {
    if (drops_.Next()) {
      LOG_WARNING << "KV events " << sequence << " dropped, the publisher is too slow";
    }
    return;
  }
  ++num_queued_;
  batch.data_parallel_rank = options_.data_parallel_rank;
  queue_.Push({sequence, std::move(batch)});
}

void KvEventPublisher::Loop::Run() {
  SetThreadName("kv-events");
  while (!stop_) {
    poll_.Wait();
    SendQueued();
    SendReplays();
  }
  SendQueued();
  publisher_.Close(kLingerMs);
  replay_.Close();
}

void KvEventPublisher::Loop::SendQueued() {
  if (!queue_.Drain(&drained_)) return;
  for (const Numbered& numbered : drained_) {
    std::string payload =
        EncodeKvEvents(numbered.batch, options_.hash_form, options_.config.encoding);
    const std::string sequence = BigEndian(numbered.sequence);
    const std::string_view frames[] = {options_.config.topic, sequence, payload};
    publisher_.Send(frames);
    --num_queued_;
    if (!replay_.is_open()) continue;
    sent_.push_back({numbered.sequence, std::move(payload)});
    if (sent_.size() > static_cast<size_t>(options_.config.buffer_steps)) sent_.pop_front();
  }
  drained_.clear();
}

void KvEventPublisher::Loop::SendReplays() {
  while (replay_.may_have_input() && replay_.Receive(&received_)) {
    const auto frames = received_.frames();
    if (frames.size() == 3 && frames[1].empty() && frames[2].size() == 8) {
      Replay(frames[0], FromBigEndian(frames[2]));
    } else if (complaints_.Next()) {
      LOG_WARNING << "a replay request of " << frames.size()
                  << " frames is not (id, empty, 8 bytes of sequence number)";
    }
  }
}

void KvEventPublisher::Loop::Replay(std::string_view peer, int64_t first) {
  for (const Sent& sent : sent_) {
    if (sent.sequence < first) continue;
    const std::string sequence = BigEndian(sent.sequence);
    const std::string_view frames[] = {peer, "", options_.config.topic, sequence, sent.payload};
    replay_.Send(frames);
  }
  const std::string end = BigEndian(kEndOfReplay);
  const std::string_view frames[] = {peer, "", "", end, ""};
  replay_.Send(frames);
}

void KvEventPublisher::Loop::Close() {
  if (!thread_.joinable()) return;
  stop_ = true;
  wake_up_.Signal();
  thread_.join();
}

KvEventPublisher::KvEventPublisher(KvEventPublisherOptions options)
    : loop_(std::make_unique<Loop>(std::move(options))) {}
KvEventPublisher::~KvEventPublisher() { Close(); }

Status KvEventPublisher::Start() { return loop_->Start(); }
const KvEventsConfig& KvEventPublisher::config() const { return loop_->config(); }
void KvEventPublisher::Publish(KvEventBatch batch) { loop_->Publish(std::move(batch)); }
void KvEventPublisher::Close() { loop_->Close(); }

}  // namespace tandem::wire
