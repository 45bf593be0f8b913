# Installs the build into an empty folder, then configures, builds and runs the projects here against it.
# cmake -DBUILD_DIR=... -DWORK_DIR=... -DCOMPILER=... -DLIBTORCH_INCLUDE_DIR=... -DCONSUMERS="plan;..." -P consumers.cmake
include(${CMAKE_CURRENT_LIST_DIR}/helpers.cmake)
set(prefix ${WORK_DIR}/prefix)
set(configure ${CMAKE_COMMAND} -G Ninja -DCMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${COMPILER_FLAGS}"
  -DCMAKE_PREFIX_PATH=${prefix})

file(REMOVE_RECURSE ${WORK_DIR})
run("cmake --install" out ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

set(expected_plan "recompute: 1")
set(expected_checkpoint "gradient: 4 10")
set(expected_forecast "forecast: [2, 3, 3]")
foreach(consumer IN LISTS CONSUMERS)
  set(environment ${CMAKE_COMMAND} -E env)
  if(consumer STREQUAL "plan")
    # Proves that the planner needs no LibTorch: there is none to be found.
    list(APPEND environment LIBTORCH_ROOT=/nonexistent)
  endif()
  set(build ${WORK_DIR}/${consumer})
  run("configuring ${consumer}" out ${environment} ${configure} -S ${CMAKE_CURRENT_LIST_DIR}/${consumer} -B ${build})
  run("building ${consumer}" out ${CMAKE_COMMAND} --build ${build})
  file(MAKE_DIRECTORY ${build}/run)
  run("running ${consumer}" out ${CMAKE_COMMAND} -E chdir ${build}/run ${build}/consumer)
  expect_in("${out}" "${expected_${consumer}}")
  message(STATUS "${consumer}: installed, found, built, run")
endforeach()

set(own ${configure} -S ${CMAKE_CURRENT_LIST_DIR}/own_target)
foreach(target LibTorch::LibTorch torch)
  string(MAKE_C_IDENTIFIER ${target} name)
  run("a project's own ${target}" out ${own} -B ${WORK_DIR}/own_${name} -DOWN_TARGET=${target}
    -DOWN_INCLUDE_DIR=${LIBTORCH_INCLUDE_DIR})
endforeach()

make_fake_libtorch(${WORK_DIR}/other 2.14.1)
run_failing("a project's own LibTorch 2.14" out ${own} -B ${WORK_DIR}/own_other -DOWN_TARGET=torch
  -DOWN_INCLUDE_DIR=${WORK_DIR}/other/include)
expect_in("${out}" "Reprise needs LibTorch 2.15, found 2.14.1")
run_failing("an unknown component" out ${configure} -S ${CMAKE_CURRENT_LIST_DIR}/unknown_component
  -B ${WORK_DIR}/unknown_component)
expect_in("${out}" "has the components plan, reprise")

foreach(program IN LISTS PROGRAMS)
  run("the installed ${program}" out ${prefix}/bin/${program} --help)
endforeach()
