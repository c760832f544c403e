import { render } from 'preact'
import { data } from './data/index.ts'
import { shared } from './screens/new_session'
import { Shell, watchMoves } from './screens/shell'
import './styles/tokens.css'
import './styles/base.css'
import './styles/parts.css'
import './styles/shell.css'
import './styles/transcript.css'
import { go, takeShared } from './ui/router'
import { followTheme } from './ui/theme'

followTheme()
data.start()
watchMoves()
shared.value = takeShared()
if (shared.value !== '') go({ name: 'new', agent: null }, 'replace')
const root = document.getElementById('page')
if (root !== null) render(<Shell />, root)
