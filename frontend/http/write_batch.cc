#include "frontend/http/write_batch.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "frontend/http/connection.h"
#include "frontend/net/send_ring.h"

namespace tandem {
namespace {

constexpr size_t kMaxRoomBytes = 32 << 10;  // more is not kept

struct Kept {
  int num_open = 0;
  size_t num_connections = 0;
  std::array<Connection*, SendRing::kMaxSends> connections;
  std::vector<std::string> rooms;
  SendRing ring;

  void SendAll() {
    const auto writers = connections;
    std::array<SocketSend, SendRing::kMaxSends> sends;
    const std::span all(sends.data(), std::exchange(num_connections, 0));
    for (size_t i = 0; i < all.size(); ++i) all[i] = writers[i]->kept();
    ring.Send(all);
    for (size_t i = 0; i < all.size(); ++i) writers[i]->OnKeptSent(all[i].result);
  }
};

thread_local Kept thread_kept;

}  // namespace

WriteBatch::WriteBatch() { ++thread_kept.num_open; }

WriteBatch::~WriteBatch() {
  if (--thread_kept.num_open == 0) thread_kept.SendAll();
}

bool WriteBatch::is_open() { return thread_kept.num_open > 0; }

void WriteBatch::Add(Connection* connection) {
  thread_kept.connections[thread_kept.num_connections++] = connection;
  if (thread_kept.num_connections == SendRing::kMaxSends) thread_kept.SendAll();
}

std::string WriteBatch::TakeRoom() {
  std::vector<std::string>& rooms = thread_kept.rooms;
  if (rooms.empty()) return {};
  std::string room = std::move(rooms.back());
  rooms.pop_back();
  return room;
}

void WriteBatch::GiveRoom(std::string room) {
  if (thread_kept.rooms.size() == SendRing::kMaxSends || room.capacity() > kMaxRoomBytes) return;
  room.clear();
  thread_kept.rooms.push_back(std::move(room));
}

void WriteBatch::Remove(Connection* connection) {
  Connection** const end = thread_kept.connections.data() + thread_kept.num_connections;
  Connection** const left = std::remove(thread_kept.connections.data(), end, connection);
  thread_kept.num_connections -= static_cast<size_t>(end - left);
}

}  // namespace tandem
