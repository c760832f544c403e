import { render } from 'preact'
import { data } from './data/index.ts'
import { receiveShared } from './screens/shared_content'
import { Shell, watchRequestChanges } from './screens/shell'
import './styles/tokens.css'
import './styles/base.css'
import './styles/parts.css'
import './styles/shell.css'
import './styles/transcript.css'
import { watchFailures } from './ui/action_failures'
import { watchSessions } from './ui/session_marks'
import { followTheme } from './ui/theme'

followTheme()
data.start()
watchRequestChanges()
watchSessions()
watchFailures()
void receiveShared()
const root = document.getElementById('page')
if (root !== null) render(<Shell />, root)
