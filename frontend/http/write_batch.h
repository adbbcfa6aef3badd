#pragma once

// While one lives, the small writes of its thread's connections are kept, and leave together when
// it ends, or once there are SendRing::kMaxSends: an engine's message has tokens for many streams.
// One inside another is part of it. What a connection writes keeps its order; one that closes sends
// its kept bytes first. Thread: a shard's; lives on the stack.

#include <string>

namespace tandem {

class Connection;

class WriteBatch {
 public:
  WriteBatch();
  ~WriteBatch();
  WriteBatch(const WriteBatch&) = delete;

  static bool is_open();  // on this thread
  // For Connection. Add may send what is kept. REQUIRES: is_open().
  static void Add(Connection* connection);
  static void Remove(Connection* connection);
  // Memory for what is kept, which is given back once it is sent. Used again and again it stays in
  // the CPU's caches, where a connection's own would not be when the next token comes.
  static std::string TakeRoom();
  static void GiveRoom(std::string room);
};

}  // namespace tandem
