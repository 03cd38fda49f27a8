// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Headers that are compiled once for the guest programs, because compiling them for each program
 * took a fifth of the time. A program includes what it uses nevertheless.
 */
#include "../check.hpp"
#include "../verbs.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>
