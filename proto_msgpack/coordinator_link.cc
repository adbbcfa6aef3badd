#include "proto_msgpack/coordinator_link.h"

#include <string_view>

namespace tandem::wire {
namespace {

constexpr int kReconnectMs = 10;
constexpr int kMaxReconnectMs = 1000;

void Prepare(Socket* socket) {
  socket->SetReconnectInterval(kReconnectMs, kMaxReconnectMs);
  socket->NoticeVanishedHosts();
}

}  // namespace

Status CoordinatorLink::Start(zmq::context_t* context, const std::string& input,
                              const std::string& output) {
  words_.Open(*context, zmq::socket_type::xsub);
  reports_.Open(*context, zmq::socket_type::push);
  Prepare(&words_);
  Prepare(&reports_);
  RETURN_IF_ERROR(words_.Connect(input));
  RETURN_IF_ERROR(reports_.Connect(output));
  const std::string_view frames[] = {kSubscribe};
  words_.Send(frames);  // kept until there is a connection, and repeated over a new one
  return OkStatus();
}

void CoordinatorLink::Receive() {
  while (words_.may_have_input() && words_.Receive(&received_)) {
  }
}

void CoordinatorLink::Report(int engine_index, const SchedulerStats& stats, double timestamp) {
  const bool is_new = stats.num_running_reqs != reported_.num_running_reqs ||
                      stats.num_waiting_reqs != reported_.num_waiting_reqs ||
                      stats.num_skipped_waiting_reqs != reported_.num_skipped_waiting_reqs;
  if (!is_open() || !is_new) return;
  reported_.num_running_reqs = stats.num_running_reqs;
  reported_.num_waiting_reqs = stats.num_waiting_reqs;
  reported_.num_skipped_waiting_reqs = stats.num_skipped_waiting_reqs;
  reported_.kv_cache_usage = stats.kv_cache_usage;
  EngineCoreOutputs report;
  report.engine_index = engine_index;
  report.timestamp = timestamp;
  report.scheduler_stats = reported_;
  Encode(report, &encoded_);
  const std::string_view frames[] = {encoded_.body};
  reports_.Send(frames);
}

void CoordinatorLink::Close() {
  words_.Close();
  reports_.Close();
}

}  // namespace tandem::wire
